"""What the settings name, as trust sees it at this moment."""

from pathlib import Path

import pytest

from quarterdeck.config.native_names import Profile
from quarterdeck.config.native_tools import NativeWish
from quarterdeck.config.places.paths import state_dir
from quarterdeck.config.settings import Settings
from quarterdeck.trust.configured_servers import configured, places_of
from quarterdeck.trust.exposure import record_exposure
from quarterdeck_protocol.configs import StdioServerConfig


def test_places_are_those_of_servers_and_of_native_tools(tmp_path: Path) -> None:
    """A configuration in a folder that a server may write would count as the user's word."""
    server = StdioServerConfig(id="fs", command="run", sandbox={"write": [str(tmp_path / "s")]})
    native = NativeWish(profile=Profile.ALL, workspace=tmp_path / "w")
    settings = Settings(servers=(server,), native=native)
    assert set(map(str, places_of(settings, settings.servers))) == {str(tmp_path / "s"), str(tmp_path / "w")}
    assert set(map(str, places_of(Settings(servers=(server,)), ()))) == set()


def test_a_file_that_could_be_written_is_known_by_each_row_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session would open its own sandbox, or add a server, for the next start."""
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))
    config = tmp_path / "w" / "mcp.json"
    config.parent.mkdir()
    config.write_text('{"mcpServers": {"a": {"command": "run"}}, "native": {"webfetch": {"allow": ["127.0.0.1"]}}}')
    found = configured(Settings.load([config]))
    assert (found.native.exposed, found.rows[0].rules.exposed) == ("", "")
    record_exposure(state_dir(), [tmp_path / "w"])
    found = configured(Settings.load([config]))
    assert (found.native.exposed, found.rows[0].rules.exposed) == (str(config), str(config))
