"""Which servers decks share, and whose directories servers have."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.config.load.origin import ClientForm, Origin, Standing
from quarterdeck.config.secrets.store import SecretStore
from quarterdeck.config.settings import Settings
from quarterdeck.fleet.from_settings import FleetSource, sharing_key
from quarterdeck_protocol.configs import BridgeConfig, SseServerConfig, StdioServerConfig, TrustMode
from quarterdeck_protocol.faults import ProtocolFault

from .played_fleets import PretendRuntime

USER_FILE = Path("/home/me/.config/quarterdeck/mcp.json")


def server(**fields: Any) -> StdioServerConfig:
    return StdioServerConfig.model_validate({"id": "s", "command": "s", "inherit_env": ("TOKEN",), **fields})


def found_in(folder: str, *, standing: Standing = Standing.USER, path: Path = USER_FILE, **fields: Any) -> Settings:
    fields = {"environ": {"PATH": "/bin"}, **fields}
    expanded = fields.pop("expanded", frozenset())
    origin = Origin(path, "s", standing, {}, expanded=expanded)
    return Settings(origins={"s": origin}, candidates=(Path(folder, ".mcp.json"), USER_FILE), is_found=True, **fields)


def key(settings: Settings, config: StdioServerConfig | SseServerConfig | None = None, scope: str = "user") -> str:
    found = sharing_key(settings, config or server(), scope)
    assert found is not None
    return found


def test_the_users_server_is_one_in_all_projects() -> None:
    """Each project that is open would have a process of its own."""
    assert found_in("/one").digest != found_in("/two").digest
    assert key(found_in("/one")) == key(found_in("/two"))
    assert found_in("/one").paths_of("s") == found_in("/two").paths_of("s")
    assert key(found_in("/one")) == key(found_in("/one", environ={"PATH": "/bin", "TERM_SESSION_ID": "1"}))


@pytest.mark.parametrize(
    "other",
    [
        {"environ": {"PATH": "/other"}},
        {"environ": {"PATH": "/bin", "TOKEN": "mine"}},
        {"allow_unsandboxed": True},
        {"open_port": 0},
        {"expanded": frozenset({"secret"})},
        {"path": Path("/home/other/mcp.json")},
    ],
)
def test_what_would_start_in_another_way_is_not_shared(other: dict[str, Any]) -> None:
    """A project would call a server with another's programs, rights or secrets."""
    assert key(found_in("/one")) != key(found_in("/one", **other))


@pytest.mark.parametrize(
    "other",
    [
        server(env={"KEY": "1"}),
        server(cwd="/project"),
        server(trust=TrustMode.STRICT),
        server(sandbox={"read": ["/project"]}),
        SseServerConfig(id="s", url="https://example.org"),
    ],
)
def test_other_values_are_another_server(other: StdioServerConfig | SseServerConfig) -> None:
    """A row whose variables one project fills differently would run with the other's values."""
    assert key(found_in("/one")) != key(found_in("/one"), other)


def test_what_the_ledger_tells_apart_is_not_shared() -> None:
    """What was approved for one file would be recorded of another's server."""
    assert key(found_in("/one"), scope="user") != key(found_in("/one"), scope="/mcp.json")


@pytest.mark.parametrize("standing", [Standing.PROJECT, Standing.CODE])
def test_a_projects_server_is_its_decks_alone(standing: Standing) -> None:
    """A cloned repository's server would serve another project; or share its home."""
    one, two = (found_in(folder, standing=standing, path=Path(folder, ".mcp.json")) for folder in ("/one", "/two"))
    assert sharing_key(one, server(), "/one/.mcp.json") is None
    assert one.home_digest("s") == one.digest != two.home_digest("s")


def test_a_named_files_servers_have_one_home_with_whatever_it_is_named(tmp_path: Path) -> None:
    """A second `-c` would cost every server of the first what it has downloaded."""
    path = tmp_path / "mcp.json"
    named = replace(found_in("/", standing=Standing.NAMED, path=path), is_found=False, config_paths=(path,))
    beside = replace(named, config_paths=(path, tmp_path / "other.json"))
    assert named.home_digest("s") == beside.home_digest("s") == named.digest != beside.digest
    assert named.home_digest("s") != replace(named, origins=found_in("/", path=path).origins).home_digest("s")


def test_a_wish_is_that_of_its_moment() -> None:
    """A server that others share would be restarted by what a deck says that has reloaded, or is gone."""
    present = [found_in("/one")]
    source = FleetSource(
        settings=lambda: present[0],
        scope=lambda server: "user" if server == "s" else None,
        trusted=lambda: ("/one",),
        slot=nullcontext,
        has_to_install=lambda config, home: home == present[0].paths_of(config.id).home,
    )
    wish = source.wish(server())
    assert (wish.key, wish.place) == (key(present[0]), f"{present[0].home_digest('s')}/s")
    assert wish.trusted() == ("/one",)
    assert source.wish(server(id="unknown")) is None
    present[0] = found_in("/one", standing=Standing.PROJECT)
    assert source.wish(server()) is None
    assert wish.place == f"{found_in('/two').home_digest('s')}/s"


async def test_a_client_without_a_secret_of_its_own_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: PretendRuntime
) -> None:
    """A server would start as somebody else, or as nobody; or its log and its remedy be another client's."""
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "state"))
    config = server(scope="client", env={"KEY": "${keyring:KEY}"})

    def build(keyring: Callable[[str], str]) -> tuple[StdioServerConfig, frozenset[str]]:
        return config.model_copy(update={"env": {"KEY": keyring("KEY")}}), frozenset({keyring("KEY")})

    settings = found_in("/one")
    origin = replace(settings.origins["s"], for_client=ClientForm(("KEY",), config, build))
    settings = replace(settings, origins={"s": origin})
    withheld: list[frozenset[str]] = []
    given: list[str] = []

    async def seal(config: StdioServerConfig, _: str) -> None:
        given.append(config.env["KEY"])
        raise ProtocolFault("spawn_failed", "enough", code="closed")

    source = FleetSource(
        settings=lambda: settings,
        scope=lambda _: "user",
        trusted=tuple,
        slot=nullcontext,
        has_to_install=lambda *_: False,
        withhold=withheld.append,
        sealing=seal,
    )
    SecretStore().set("KEY", "owners", in_file=True)
    SecretStore(client="Anna").set("KEY", "Annas", in_file=True)

    async def started(client: str) -> ProtocolFault | None:
        fleet = source.fleet(client)
        try:
            await fleet.start(BridgeConfig(servers=(config,)))
            return fleet.last_fault("s")
        finally:
            await fleet.tear_down()

    for client, code, remedy in (
        ("anna", "missing_client_secret", "quarterdeck secret set KEY --client anna"),
        ("Anna", "closed", "start it again"),
        ("", "closed", "start it again"),
    ):
        fault = await started(client)
        assert fault is not None
        assert (fault.code, fault.remedy_for("s")) == (code, remedy)
    assert (given, withheld) == (["Annas", "owners"], [{"Annas"}, {"owners"}])
    homes = {client: settings.paths_of("s", client).home for client in ("", "anna", "Anna")}
    base = homes[""].parent
    assert list(homes.values()) == [base / "home", base / "clients/anna/home", base / "clients/~anna/home"]
