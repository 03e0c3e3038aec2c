"""The user's registries, mirrors and logins: what an installation reaches and is given, and what nobody else sees."""

from pathlib import Path

import pytest

from quarterdeck.seals.indexes import Indexes, npm_indexes, python_indexes


@pytest.fixture
def home(tmp_path) -> Path:
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def of_python(environ: dict[str, str], home: Path, *, is_pip_first: bool = False) -> Indexes:
    return python_indexes(environ, home, is_pip_first=is_pip_first, system=home / "etc")


NOTHING = {"npm_config_globalconfig": "/dev/null"}


def test_without_settings_npm_reaches_its_public_registry_alone(home):
    """An installer could reach the whole internet, or nothing."""
    found = npm_indexes(NOTHING, home)
    assert found.hosts == ("registry.npmjs.org:443",)
    assert found.files == {".npmrc": "registry=https://registry.npmjs.org/\n"}
    assert found.secrets == ()


def test_npms_mirrors_scopes_and_logins_are_passed_on_and_nothing_else(home):
    """A private registry could not be used, or a setting such as `script-shell` would reach the installation."""
    text = """\
; a comment
registry = "https://mirror.example:8443/npm/"
@corp:registry=http://corp.example/
//corp.example/:_authToken=${CORP_TOKEN}
//mirror.example:8443/npm/:_password=aHVudGVyMg==
script-shell=/evil
ignore-scripts=false
"""
    write(home / ".npmrc", text)
    found = npm_indexes({**NOTHING, "CORP_TOKEN": "t0ken", "NPM_CONFIG_STRICT_SSL": "false"}, home)
    assert found.hosts == ("mirror.example:8443", "corp.example:80")
    assert found.files[".npmrc"].splitlines() == [
        "registry=https://mirror.example:8443/npm/",
        "@corp:registry=http://corp.example/",
        "//corp.example/:_authToken=t0ken",
        "//mirror.example:8443/npm/:_password=aHVudGVyMg==",
        "strict-ssl=false",
    ]
    assert found.secrets == ("t0ken", "aHVudGVyMg==")


def test_a_setting_of_npms_keeps_its_line_ends_and_comment_signs(home):
    """A certificate or a token would be cut off, or could add a setting of its own."""
    write(home / ".npmrc", 'ca="-----BEGIN\\nabc"\n//h.example/:_authToken=${TOKEN}\n')
    found = npm_indexes({**NOTHING, "TOKEN": "a;b#c\nignore-scripts=false"}, home)
    assert found.files[".npmrc"].splitlines()[:2] == [
        'ca="-----BEGIN\\nabc"',
        '//h.example/:_authToken="a;b#c\\nignore-scripts=false"',
    ]


def test_the_environment_wins_over_npms_files(home):
    """A CI job's registry would be ignored."""
    write(home / ".npmrc", "registry=https://one.example/\n")
    found = npm_indexes({**NOTHING, "npm_config_registry": "https://user:hunter2@two.example/"}, home)
    assert found.hosts == ("two.example:443",)
    assert set(found.secrets) == {"user", "hunter2"}


def test_a_proxy_is_reached_and_its_login_is_secret(home):
    """Behind a proxy nothing could be installed, or its password would show in errors."""
    environ = {**NOTHING, "https_proxy": "http://me:pa%40ss@proxy.example:3128", "NO_PROXY": "localhost"}
    for found in (npm_indexes(environ, home), of_python(environ, home)):
        assert "proxy.example:3128" in found.hosts
        assert found.env["HTTPS_PROXY"] == found.env["https_proxy"] == environ["https_proxy"]
        assert {"pa%40ss", "pa@ss"} <= set(found.secrets)


def test_without_settings_uv_and_pip_reach_pypi_and_its_files_alone(home):
    """An installer could reach the whole internet, or nothing."""
    found = of_python({}, home)
    assert found.hosts == ("pypi.org:443", "files.pythonhosted.org:443")
    assert found.env["UV_DEFAULT_INDEX"] == found.env["PIP_INDEX_URL"] == "https://pypi.org/simple"


UV = """\
[[index]]
name = "corp"
url = "https://u:hunter2@corp.example/simple"
[[index]]
url = "https://mirror.example/simple"
default = true
[[index]]
name = "torch"
url = "https://torch.example/whl"
explicit = true
"""
PIP = "[global]\nindex-url = https://pip.example/simple\ntrusted-host = pip.example\nproxy = http://proxy.example:80\n"


def test_uvs_settings_serve_both_installers_and_pips_are_the_second_choice(home):
    """A machine with a mirror for one of them could not install with the other."""
    write(home / ".config/pip/pip.conf", PIP)
    pip_alone = of_python({}, home)
    assert pip_alone.hosts == ("pip.example:443", "proxy.example:80")
    write(home / ".config/uv/uv.toml", UV)
    found = of_python({}, home)
    assert found.hosts == ("mirror.example:443", "corp.example:443")
    assert found.env["UV_INDEX"] == "corp=https://u:hunter2@corp.example/simple"
    assert found.env["UV_DEFAULT_INDEX"] == found.env["PIP_INDEX_URL"] == "https://mirror.example/simple"
    assert set(found.secrets) == {"hunter2", "u"}
    assert of_python({}, home, is_pip_first=True).hosts == pip_alone.hosts


def test_the_environment_wins_over_uvs_and_pips_files(home):
    """A CI job's index would be ignored."""
    write(home / ".config/uv/uv.toml", UV)
    environ = {"UV_INDEX_URL": "https://env.example/simple", "UV_EXTRA_INDEX_URL": "https://more.example/simple"}
    assert "env.example:443" in of_python(environ, home).hosts
    environ = {"PIP_INDEX_URL": "http://127.0.0.1:8080/simple", "PIP_EXTRA_INDEX_URL": ""}
    assert of_python(environ, home, is_pip_first=True).hosts == ("127.0.0.1:8080",)


def test_logins_of_a_netrc_are_passed_on_for_the_indexes_alone(home):
    """An index with a login would refuse, or an installer would see logins of other services."""
    write(home / ".netrc", "machine other.example login a password b\nmachine pypi.org login me password hunter2\n")
    found = of_python({}, home)
    assert found.files == {".netrc": "machine pypi.org login me password hunter2\n"}
    assert found.secrets == ("hunter2",)


def test_a_local_index_is_read_with_the_files_beside_it(home):
    """A mirror in a folder would list packages that cannot be installed."""
    (home / "mirror/simple").mkdir(parents=True)
    environ = {"PIP_INDEX_URL": f"file://{home}/mirror/simple", "PIP_FIND_LINKS": "/missing/wheels"}
    found = of_python(environ, home, is_pip_first=True)
    assert (found.hosts, found.read) == ((), (f"{home}/mirror",))
    assert "PIP_FIND_LINKS" not in found.env


@pytest.mark.parametrize("text", ["\x00", "[global", "=", "[[index]", "registry", "a" * 100_000])
def test_a_broken_file_of_settings_is_as_none(home, text):
    """A broken line in a user's file would end in a traceback."""
    for name in (".npmrc", ".netrc", ".config/pip/pip.conf", ".config/uv/uv.toml"):
        write(home / name, text)
    assert npm_indexes(NOTHING, home).hosts == ("registry.npmjs.org:443",)
    assert "pypi.org:443" in of_python({}, home).hosts
