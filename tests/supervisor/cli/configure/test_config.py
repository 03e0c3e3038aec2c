"""`quarterdeck config`: where it comes from, what it says, what is wrong with it."""

import json
from pathlib import Path

import pytest
from support.command_line import Said
from support.config.places import use_places

from quarterdeck.cli.configure import config
from quarterdeck_sandbox.policy.machine import Machine

MACHINE = Machine("linux", "x86_64", "6.12.0", landlock_abi=6, seccomp=True, gate="/gate")
"""It confines, but not all that `strict` asks for."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with one file, and a project below another directory, in which we are."""
    for name in ("home/.config/quarterdeck", "project"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    use_places(monkeypatch, tmp_path)
    for name in ("XDG_CONFIG_HOME", "QUARTERDECK_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setattr("quarterdeck.cli.configure.config.known_machine", lambda: MACHINE)
    return tmp_path / "home"


def write(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document))
    return path


def own(home: Path, document: object) -> Path:
    return write(home / ".config/quarterdeck/mcp.json", document)


def test_every_place_is_shown_in_order(home: Path, said: Said) -> None:
    """A user would not know where to write, or which file wins."""
    path = own(home, {"servers": {}})
    (home.parent / "project/.mcp.json").write_text("{")
    lines = said(0, "config", "path").out.splitlines()
    assert [line.split()[0].rpartition("/")[2] for line in lines] == [
        "FILE",
        "mcp.json",
        "mcp.json",
        "mcp.json",
        "mcp.json",
        "mcp-servers.json",
        "quarterdeck.json",
        ".mcp.json",
    ]
    assert "used" in lines[2]
    assert "cannot be used" in lines[7]
    assert "the project's, untrusted" in lines[7]
    places = said.json(0, "config", "path", "--json")
    assert [(place["path"], place["exists"], place["standing"]) for place in places][1] == (str(path), True, "user")
    assert places[6]["error"].startswith("line 1")


def test_values_are_shown_with_their_place_and_without_secrets(
    home: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user could not tell where a value comes from, or would publish a password in asking."""
    monkeypatch.setenv("TOKEN", "s3cret")
    rows = {
        "a": {"command": "c", "env": {"T": "${TOKEN}", "P": "s3cret"}},
        "half": {"command": "${QD_TEST_NOT_SET}", "args": ["\ud800", 1e999]},
    }
    path = own(home, {"mcpServers": rows})
    shown = said(0, "config", "show")
    assert "s3cret" not in shown.out + shown.err
    lines = [line.split() for line in shown.out.splitlines()]
    assert ["env.T", "${TOKEN}", "/mcpServers/a/env/T"] in lines
    assert ["env.P", "••••", "/mcpServers/a/env/P"] in lines
    assert "default" not in shown.out
    assert f"a (user, {path} /mcpServers/a)" in shown.out
    assert "cannot be started" in shown.out
    lines = [line.split() for line in said(0, "config", "show", "--all").out.splitlines()]
    assert ["call_timeout_s", "300.0", "default"] in lines
    whole = said.json(0, "config", "show", "--json")
    assert {"key": "env.P", "value": "••••", "source": str(path), "pointer": "/mcpServers/a/env/P"} in whole["servers"][
        0
    ]["values"]
    assert whole["servers"][1]["problem"].endswith("the variable 'QD_TEST_NOT_SET' is not set")
    assert {"key": "trust", "value": "baseline", "source": "default", "pointer": ""} in whole["settings"]


def test_a_check_finds_everything_and_says_so_by_its_exit_code(home: Path, said: Said) -> None:
    """A script would start what cannot work, or a user correct one mistake after the other."""
    path = own(home, {"mcpServers": {"a": {"comand": "c", "args": [5]}, "b": {"command": "c", "evn": {}, "args": [5]}}})
    assert said(2, "config", "check").out.splitlines() == [
        f"error: {path}: mcpServers.a: unknown key 'comand': did you mean 'command'?",
        f"error: {path}: mcpServers.a.args[0]: expected a string, got 5",
        f"error: {path}: mcpServers.b: unknown key 'evn': did you mean 'env'?",
        f"error: {path}: mcpServers.b.args[0]: expected a string, got 5",
    ]
    report = said.json(2, "config", "check", "--json")
    assert report["ok"] is False
    assert report["findings"][0] == {
        "file": str(path),
        "server": "a",
        "location": "mcpServers.a",
        "reason": "unknown key 'comand': did you mean 'command'?",
        "nearest": "command",
        "is_error": True,
        "code": "config_invalid",
    }


def test_a_check_warns_of_secrets_in_plain_text(home: Path, said: Said) -> None:
    """The import that said so is long forgotten, and the token still lies in the file."""
    token = "ghp_0123456789abcdefghij"
    rows = {
        "gh": {"url": "https://host/mcp", "headers": {"Authorization": f"Bearer {token}"}},
        "kept": {"url": "https://host/mcp", "headers": {"Authorization": "Bearer ${HOME}"}},
    }
    own(home, {"mcpServers": rows})
    told = said(0, "config", "check").out
    assert "warning: gh: headers.Authorization looks like a secret in plain text: store it with" in told
    assert token not in told
    assert said.json(0, "config", "check", "--json")["plain_secrets"] == {"gh": ["headers.Authorization"]}


@pytest.mark.process
def test_a_check_finds_rows_that_the_sandbox_will_refuse(home: Path, said: Said) -> None:
    """A file would be called right whose servers never start."""
    documents = home / "documents"
    documents.mkdir()
    rows = {
        "docs": {"command": "/bin/sh", "args": [str(documents)]},
        "walled": {"command": "/bin/sh", "sandbox": {"preset": "strict"}},
        "elsewhere": {"command": "/bin/sh", "cwd": str(home / "gone")},
        "absent": {"command": str(home / "no-such-command")},
        "good": {"command": "/bin/sh"},
        "far": {"type": "http", "url": "https://example.com/mcp"},
    }
    path = own(home, {"mcpServers": rows})
    out, err = said(2, "config", "check")
    assert f'error: docs would not be started: {documents} is hidden: add "read": ["{documents}"]' in out
    assert "fix: quarterdeck allow docs gives it what its row names" in out
    assert "error: walled would not be started: the policy needs bubblewrap" in out
    assert f"error: elsewhere would not be started: the working directory {home / 'gone'} does not exist" in out
    assert f"warning: absent: there is no command '{home / 'no-such-command'}': install it" in out
    assert "good" not in out
    assert "nothing is wrong" not in err
    report = said.json(2, "config", "check", "-c", str(path), "--json")
    assert report["ok"] is False
    assert [(each["server"], each["code"]) for each in report["refused"]] == [
        ("docs", "sandbox_refused"),
        ("walled", "sandbox_refused"),
        ("elsewhere", "bad_cwd"),
    ]
    assert f"quarterdeck allow docs -c {path} gives it" in report["refused"][0]["fix"]
    assert report["commands_missing"] == {"absent": str(home / "no-such-command")}
    assert not (home.parent / "state").exists()


def test_the_schema_is_printed_as_json(said: Said) -> None:
    """An editor could not be pointed at it."""
    assert said.json(0, "config", "schema")["title"] == "Quarterdeck configuration"


def test_a_working_directory_that_is_gone_is_said(home: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user would see a traceback."""

    def cwd() -> Path:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(config.Path, "cwd", cwd)
    assert "the working directory cannot be used" in said(2, "config", "check").err
