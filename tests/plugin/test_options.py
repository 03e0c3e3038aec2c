"""The options and the marker as values: which one counts, and what is said of one that means nothing."""

from pathlib import Path
from typing import Any

import pytest

from quarterdeck_pytest.options import Mark, Options, add_options, check_xdist, read_mark, read_options


class Config:
    """What is looked at of pytest's configuration."""

    def __init__(self, root: Path, ini: dict[str, object] | None = None, **options: object) -> None:
        self.rootpath = root
        self.inipath = root / "inner" / "pyproject.toml"
        self.invocation_params = Invocation(root / "here")
        self._ini, self._options = ini or {}, options

    def getoption(self, name: str) -> object:
        return self._options.get(name)

    def getini(self, name: str) -> object:
        return self._ini.get(name, "")


class Invocation:
    """Where pytest was started."""

    def __init__(self, folder: Path) -> None:
        self.dir = folder


def read(
    root: Path, environ: dict[str, str] | None = None, ini: dict[str, object] | None = None, **said: object
) -> Options:
    config: Any = Config(root, ini, **said)
    return read_options(config, environ or {})


def test_the_command_line_counts_before_the_ini_file(tmp_path: Path) -> None:
    """A developer could not deviate for one run from what the project says."""
    ini: dict[str, object] = {"mcp_network": "none", "mcp_timeout": "5", "mcp_leaks": "warn", "mcp_keep": True}
    found = read(tmp_path, ini=ini, mcp_network="full")
    assert (found.network, found.timeout_s, found.leaks, found.keep) == ("full", 5.0, "warn", True)
    assert read(tmp_path) == Options()


def test_in_ci_servers_have_no_network_unless_somebody_asks(tmp_path: Path) -> None:
    """A server under test could send out whatever a CI machine holds, and nobody would be told of the restriction."""
    found = read(tmp_path, {"CI": "true"})
    assert (found.network, bool(found.network_reason)) == ("none", True)
    asked = read(tmp_path, {"CI": "true"}, mcp_network="internet")
    assert (asked.network, asked.network_reason) == ("internet", "")


def test_a_configuration_is_named_from_where_it_is_said(tmp_path: Path) -> None:
    """The same command would find another file, or none, from another folder."""
    ini: dict[str, object] = {"mcp_config": "servers.json"}
    assert read(tmp_path, mcp_config="a.json").config == tmp_path / "here" / "a.json"
    assert read(tmp_path, ini=ini).config == tmp_path / "inner" / "servers.json"
    (tmp_path / "mcp.json").touch()
    assert read(tmp_path).config == tmp_path / "mcp.json"


@pytest.mark.parametrize(
    "ini",
    [{"mcp_network": "some"}, {"mcp_timeout": "soon"}, {"mcp_timeout": "0"}, {"mcp_leaks": "x"}, {"mcp_era": "1"}],
)
def test_an_ini_key_that_means_nothing_is_named(ini: dict[str, object], tmp_path: Path) -> None:
    """A mistyped gate would let everything through."""
    [(name, value)] = ini.items()
    with pytest.raises(pytest.UsageError, match=f"{name} = {value}"):
        read(tmp_path, ini=ini)


def test_of_an_argument_the_nearest_marker_counts() -> None:
    """A test could not deviate from what its module says."""
    near, far = (("a",), {"scope": "run"}), ((), {"server": "b", "scope": "test", "timeout": 2})
    assert read_mark([near, far]) == Mark(server="a", scope="run", timeout=2)
    assert read_mark([Mark(server="a", era="both").said]) == Mark(server="a", era="both")


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((), {"polcy": "strict"}, "did you mean policy="),
        ((), {"scope": "class"}, "none of test, module, session, run"),
        ((), {"era": "2024"}, "2026-07-28"),
        ((), {"timeout": 0}, "above 0"),
        (("a", "b"), {}, "without a name"),
    ],
)
def test_a_marker_that_means_nothing_is_one_sentence(
    args: tuple[object, ...], kwargs: dict[str, object], said: str
) -> None:
    """A test would run under a policy that its author did not mean."""
    with pytest.raises(pytest.UsageError, match=said):
        read_mark([(args, kwargs)])


def test_all_options_stand_under_one_heading() -> None:
    """A user would look for them all over `pytest --help`."""
    parser = pytest.Parser(_ispytest=True)
    add_options(parser)
    group = parser.getgroup("quarterdeck")
    names = {option.names()[0] for option in group.options}
    assert names == {f"--mcp-{name}" for name in ("config", "network", "era", "timeout", "keep", "leaks")}


@pytest.mark.parametrize("argument", ["-n", "-n4", "-nauto", "--numprocesses=2", "--dist=loadfile"])
def test_whoever_asks_for_xdist_and_has_none_is_told_its_name(argument: str) -> None:
    """Pytest says that it does not know `-n`, and not which package does."""
    with pytest.raises(pytest.UsageError, match=f"^{argument} needs pytest-xdist"):
        check_xdist(["--other", argument])
    check_xdist(["-no", "--distance", "n4"])
