"""One call's story at the command line."""

import json
from pathlib import Path

import pytest
from support.ledger.histories import SCOPE, open_ledger

from quarterdeck.cli.exits import ExitCode
from quarterdeck.cli.program import run
from quarterdeck.ledger.dossier import write_dossier
from quarterdeck.ledger.store.queries import CallRow
from quarterdeck_protocol.faults import Dossier, FaultKind, ProtocolFault


def test_a_call_is_explained_on_one_screen(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A user would put it together from five commands, and a server's text could look like a line of ours."""
    fault = ProtocolFault(FaultKind.TRANSPORT, "gone\n  fix: run this", code="exited", dossier=Dossier(signal=9))
    call = CallRow("2026-01-02T09:00:00.000Z", SCOPE, "time", "now\n", "fault", "exited", 1500.0, client="ci")
    kept = {"seq": 1, "woke_ms": 250.0, "delivery": "unknown", "dossier": write_dossier(fault, str)}
    with open_ledger(state) as store:
        store.record_calls([CallRow(**{name: getattr(call, name) for name in call.__struct_fields__} | kept)])
    assert run(["why", "3"]) == 0
    told = capsys.readouterr().out
    assert told == (
        "call 3: now\\n of time: fault, exited\n"
        "  client   ci\n"
        "  asked    2026-01-02T08:59:58.250Z\n"
        "  time     waited for its server to start 250 ms, took 1.5 s\n"
        "  ended    2026-01-02T09:00:00.000Z, 0 B, delivery: unknown\n"
        f"  route    time of {SCOPE}\n"
        "  package  mcp-server-time 1.2 (PyPI)\n"
        "  verdict  its launch: nothing was known of it\n"
        "           tool now\\n: nothing was known of it\n"
        "  server   2026-01-01T10:00:00.000Z ready, clock 1.0, mcp-server-time 1.2 (PyPI), process 42\n"
        "  after    2026-01-02T10:00:00.000Z ended: it was killed (server_died)\n"
        "  sandbox  the process that took the call has ended, and with it what was observed of its sandbox\n"
        "error[exited]: gone\\n  fix: run this\n"
        "  whether the call had an effect is not known\n"
        "  fix: quarterdeck logs time shows what it wrote last; it is restarted unless it keeps crashing\n"
        "  killed by SIGKILL\n"
    )
    assert run(["why", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["call"]["number"], found["call"]["dossier"]["kind"], found["pid"]) == (3, "transport", 42)
    assert run(["why", "4"]) == ExitCode.NOT_FOUND
    assert "there is no call 4" in capsys.readouterr().err
