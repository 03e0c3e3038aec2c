"""A server sees the allow-list and what its configuration names, and nothing else of our environment."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.config.environment import DEFAULT_PATH, server_environment, user_environment
from quarterdeck_protocol.configs import StdioServerConfig

HOME, TMP = Path("/private/home"), Path("/private/tmp")


def config(**fields: object) -> StdioServerConfig:
    return StdioServerConfig.model_validate({"id": "s", "command": "c", **fields})


def environment(environ: dict[str, str], **fields: object) -> dict[str, str]:
    return server_environment(config(**fields), environ, HOME, TMP)


ALWAYS = {"PATH": DEFAULT_PATH, "HOME": "/private/home", "TMPDIR": "/private/tmp", "PYTHONHASHSEED": "453955339"}


def test_secrets_of_ours_do_not_reach_a_server() -> None:
    """Every server would get every token of the shell that started us."""
    ours = {
        "HOME": "/home/u",
        "TMPDIR": "/tmp",
        "GITHUB_TOKEN": "t",
        "AWS_SECRET_ACCESS_KEY": "k",
        "LD_PRELOAD": "x.so",
        "PYTHONPATH": "/p",
        "NODE_OPTIONS": "--require x",
        "PIP_CONFIG_FILE": "/p",
        "NPM_CONFIG_USERCONFIG": "/n",
        "npm_config_//registry.example/:_authToken": "t",
        "UV_INDEX_MINE_PASSWORD": "p",
        "SSH_AUTH_SOCK": "/s",
        "XDG_RUNTIME_DIR": "/r",
    }
    assert environment(ours) == ALWAYS


PASSED = [
    ("PATH", "/a:/b with c:/d@e"),
    ("LANG", "ca_ES.UTF-8@valencia"),
    ("LC_ALL", "C"),
    ("LC_TIME", "C"),
    ("TZ", "UTC"),
    ("HTTP_PROXY", "http://proxy.example:3128"),
    ("https_proxy", "proxy.example:3128"),
    ("no_proxy", "localhost,.example"),
    ("SSL_CERT_FILE", "/opt/homebrew/etc/openssl@3/cert.pem"),
    ("REQUESTS_CA_BUNDLE", "/ca.pem"),
    ("NODE_EXTRA_CA_CERTS", "/ca.pem"),
    ("GIT_SSL_CAINFO", "/ca.pem"),
    ("PIP_INDEX_URL", "https://index.example/simple"),
    ("UV_DEFAULT_INDEX", "https://index.example/simple"),
    ("npm_config_registry", "https://npm.example/"),
    ("NPM_CONFIG_REGISTRY", "https://npm.example/"),
    ("npm_config_@mine:registry", "https://npm.example/"),
    ("npm_config_https-proxy", "http://proxy.example"),
]


def test_what_every_server_needs_is_passed() -> None:
    """Package runners would fail behind a proxy, a private index or a company's certificate."""
    for name, value in PASSED:
        assert environment({name: value}) == ALWAYS | {name: value}, name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTPS_PROXY", "http://user:password@proxy.example:3128"),
        ("http_proxy", "user:password@proxy.example:3128"),
        ("ALL_PROXY", "socks5://user:pass/word@proxy.example"),
        ("PIP_INDEX_URL", "https://token@index.example/simple"),
        ("PIP_EXTRA_INDEX_URL", "https://a.example/simple https://u:p@b.example/simple"),
        ("UV_INDEX", "mine=https://u:p@index.example/simple"),
        ("npm_config_registry", "https://u:p@npm.example/"),
    ],
)
def test_credentials_pass_only_when_they_are_named(name: str, value: str) -> None:
    """Any server could read the password of a proxy or an index."""
    assert environment({name: value}) == ALWAYS
    assert environment({name: value}, inherit_env=[name]) == ALWAYS | {name: value}
    assert environment({name: value}, sandbox={"environment": [name]}) == ALWAYS | {name: value}


def test_the_configurations_env_wins_over_inherited_over_listed() -> None:
    """A user could not correct a variable for one server."""
    ours = {"LANG": "C", "A": "ours", "B": "ours", "HOME": "/home/u", "TZ": "UTC"}
    fields = {"inherit_env": ["A", "B", "HOME", "MISSING"], "env": {"B": "config", "TZ": "CET"}}
    expected = {"LANG": "C", "A": "ours", "B": "config", "HOME": "/home/u", "TZ": "CET"}
    assert environment(ours, **fields) == ALWAYS | expected


def test_a_python_server_orders_its_sets_the_same_way_at_each_start() -> None:
    """Definitions that are made of a set (mcp-atlassian) would be held as changed after each restart."""
    seeds = [
        server_environment(config(id=name), {}, Path(home), TMP)["PYTHONHASHSEED"]
        for name, home in (("s", "/a"), ("s", "/b"), ("t", "/a"))
    ]
    assert seeds[0] == seeds[1] != seeds[2]
    assert environment({}, env={"PYTHONHASHSEED": "random"})["PYTHONHASHSEED"] == "random"


@pytest.mark.parametrize("ours", [{}, {"PATH": ""}])
def test_without_a_path_a_usable_one_is_given(ours: dict[str, str]) -> None:
    """Started by a desktop application, no command would be found."""
    assert environment(ours)["PATH"] == DEFAULT_PATH


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_no_unlisted_variable_ever_passes(ours: dict[str, str]) -> None:
    """One pattern too wide would leak whatever it matches."""
    assert environment({f"MY_{name}": value for name, value in ours.items()}) == ALWAYS


PLACES = {
    "NVM_DIR": "/home/u/.nvm",
    "PYENV_ROOT": "/home/u/.pyenv",
    "XDG_RUNTIME_DIR": "/run/user/1000",
    "SSH_AUTH_SOCK": "/run/agent",
    "AWS_SHARED_CREDENTIALS_FILE": "/home/u/keys",
    "DISPLAY": ":0",
}
OTHERS = {
    "AWS_SECRET_ACCESS_KEY": "s3cret",
    "GH_TOKEN": "s3cret",
    "UV_INDEX_PASSWORD": "s3cret",
    "MY_NVM_DIR": "/x",
    "API_TOKEN": "s3cret",
    "HOME": "/home/u",
}


def test_a_worker_is_told_where_tools_and_granted_things_are_and_no_secret() -> None:
    assert user_environment({**OTHERS, **PLACES}) == PLACES
