"""`doctor`: tables, remedies, JSON and exit codes."""

import json
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.command_line import Said
from support.config.places import write_config

from quarterdeck.cli.diagnose import doctor
from quarterdeck.cli.program import run
from quarterdeck.config.load.merge import MergedConfig
from quarterdeck_protocol.policy_values import Property
from quarterdeck_sandbox.policy.diagnosis import Attack, AttackOutcome, SelfTest
from quarterdeck_sandbox.policy.machine import Bubblewrap, Cgroups, Machine

BEST = Machine(
    system="linux",
    architecture="x86_64",
    kernel="6.12.0",
    bubblewrap=Bubblewrap("/usr/bin/bwrap", "0.12.0", works=True, makes_network=True, nests_safely=True),
    landlock_abi=6,
    seccomp=True,
    closes=True,
    cgroups=Cgroups("/cg", dict.fromkeys(("memory", "pids", "cpu"), "/cg"), frozenset({"cpu"})),
    pasta="/usr/bin/pasta",
    gate="/gate",
)
HELD = SelfTest((Attack("read a secret", Property.FILESYSTEM, AttackOutcome.HELD, "Permission denied"),))


def finding(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: (machine, HELD))
    # The configuration of whoever runs the tests is not looked for.
    read = doctor.read_config
    nothing = MergedConfig()
    monkeypatch.setattr(doctor, "read_config", lambda config: read(config) if config else nothing)


@pytest.mark.parametrize(
    ("machine", "code"),
    [(BEST, 0), (replace(BEST, bubblewrap=Bubblewrap()), 1), (Machine(system="darwin"), 2)],
    ids=["full", "weaker", "none"],
)
def test_the_exit_code_says_how_far_a_machine_can_be_trusted(
    monkeypatch: pytest.MonkeyPatch, said: Said, machine: Machine, code: int
) -> None:
    """A script could not tell a full sandbox from none."""
    finding(monkeypatch, machine)
    out = said(code, "doctor").out
    assert out.splitlines()[-1] == doctor.VERDICTS[code]
    assert ("apt install bubblewrap" in out) == (code == 1)
    assert said.json(code, "doctor", "--json")["exit_code"] == code


def test_missing_libraries_of_native_tools_are_named_once_and_change_no_exit_code(
    monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    """Each would be found out by a call that fails, though servers need none of them."""
    finding(monkeypatch, BEST)
    monkeypatch.setitem(sys.modules, "ddgs", None)
    monkeypatch.setitem(sys.modules, "justhtml", None)
    out = said(0, "doctor").out
    assert "The native tool websearch cannot work in full: ddgs not installed." in out
    assert out.count("pip install 'quarterdeck[native]'") == 1


def test_remedies_are_told_once_facts_go_to_programs_and_nothing_to_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one thing to do would be lost among repetitions, or a hostile bwrap retitle the window."""
    finding(monkeypatch, replace(BEST, cgroups=Cgroups()))
    run(["doctor"])
    out = capsys.readouterr().out
    assert out.count("systemd-run --user --scope") == 1
    assert "control group: memory, control group: pids, control group: cpu: not writable for us\n  systemd-run" in out
    finding(monkeypatch, BEST)
    run(["doctor", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["machine"]["bubblewrap"]["version"] == "0.12.0"
    assert document["machine"]["cgroups"]["legacy"] == ["cpu"]
    assert document["attacks"] == [
        {"subject": "attack: read a secret", "state": "ok", "what": "Permission denied", "remedy": ""}
    ]
    finding(monkeypatch, replace(BEST, bubblewrap=Bubblewrap("/x/bwrap", why="\x1b]0;owned\x07")))
    run(["doctor"])
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.process
def test_it_ends_with_what_would_become_of_the_configured_servers(
    monkeypatch: pytest.MonkeyPatch, said: Said, tmp_path: Path
) -> None:
    """It would call a machine fine on which none of the user's servers starts."""
    finding(monkeypatch, BEST)
    rows = {
        "good": {"command": "/bin/sh"},
        "gone": {"command": "no-such-command"},
        "far": {"type": "http", "url": "https://example.com/mcp"},
        "broken": {"command": 3},
    }
    config = tmp_path / "mcp.json"
    write_config(config, **rows)
    out = said(1, "doctor", "-c", config).out
    assert out.splitlines()[-1].endswith("Of the configured servers 2 would start, 2 would be refused.")
    fates = [("good", "starts"), ("gone", "refused"), ("far", "starts"), ("broken", "refused")]
    assert [tuple(line.split()) for line in out.splitlines() if tuple(line.split()) in fates] == fates
    reason = out.splitlines().index(next(line for line in out.splitlines() if line.startswith("gone: no-such-command")))
    assert out.splitlines()[reason + 1] == "  install it, or give its full path in command"
    assert "  correct the configuration where the message points" in out.splitlines()
    assert "far: it is remote" in out
    told = said.json(1, "doctor", "--json", "-c", config)
    assert {each["server"]: each["outlook"] for each in told["servers"]} == {
        "good": "starts",
        "gone": "refused",
        "far": "starts",
        "broken": "refused",
    }
