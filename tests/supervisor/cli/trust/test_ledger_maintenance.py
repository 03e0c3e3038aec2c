"""Keeping the ledger whole, and elsewhere, from the command line."""

import json
import sqlite3
from pathlib import Path

import pytest
from support.ledger.histories import SCOPE, fill, open_ledger, story
from support.ledger.ledger_shell import LedgerShell

from quarterdeck.cli.exits import ExitCode
from quarterdeck.ledger.events.events import Approved, Authority, Ended, Seen, Subject, hash_of

FIRST, SECOND, THIRD = (len(events) for _, events in story())
LAST = FIRST + SECOND + THIRD


def test_an_intact_ledger_is_told_with_its_head_and_a_missing_head_is_accepted_by_a_person_alone(
    state: Path, ledger: LedgerShell
) -> None:
    """A user would have nothing to keep elsewhere, or a ledger that lost its head be trusted without a word."""
    out = ledger("verify")
    assert out.startswith(f"intact: {LAST} events, head {LAST}:")
    head = out.split()[-1]
    assert ledger("verify", "--against", head) == out
    found = ledger.document("verify")
    assert found["intact"] is True
    assert f"{found['count']}:{found['hash']}" == head
    (state / "ledger" / "head").unlink()
    assert "verify --accept" in ledger("verify", code=ExitCode.BROKEN)
    assert ledger("verify", "--accept").startswith("intact: ")
    assert ledger("verify").startswith("intact: ")


def test_an_edit_breaks_the_chain_and_is_an_exit_code(state: Path, ledger: LedgerShell) -> None:
    """A script would trust a ledger that somebody edited."""
    with sqlite3.connect(state / "ledger" / "ledger.db") as database:
        database.execute("UPDATE events SET at = '2020-01-01T00:00:00.000Z' WHERE seq = 3")
    database.close()
    out = ledger("verify", code=ExitCode.BROKEN)
    assert out.startswith("broken at event 3: ")
    assert "as it was written up to event 2" in out
    assert "restore" in out
    assert "--accept" not in out
    found = ledger.document("verify", code=ExitCode.BROKEN)
    assert (found["intact"], found["broken_seq"]) == (False, 3)


def test_a_ledger_that_lost_its_end_contradicts_what_was_written_down(
    state: Path, ledger: LedgerShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody could take back a decision, and the ledger's own head with it."""
    head = ledger("verify").split()[-1]
    shorter = tmp_path / "shorter"
    fill(shorter, days=2)
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(shorter))
    out = ledger("verify", "--against", head, code=ExitCode.BROKEN)
    assert out.startswith("contradicted: it ends at event ")
    found = ledger.document("verify", "--against", head, code=ExitCode.BROKEN)
    assert (found["intact"], found["verdict"]) == (False, "intact")


def test_secrets_are_taken_out_of_a_ledger_that_holds_them(state: Path, ledger: LedgerShell) -> None:
    """A token that an older version wrote down could never be removed."""
    body = json.dumps({"command": "npx", "args": ["--pat", "hunter2-Zq9"], "env": [], "transport": "stdio"}).encode()
    with open_ledger(state) as store:
        where = {"scope": SCOPE, "server": "old", "subject": Subject.LAUNCH, "hash": hash_of(body)}
        store.append([Seen(**where), Approved(**where, by=Authority.PERSON)], {hash_of(body): body})
        message = "https://h.example/mcp?key=hunter2-Zq9 answered 500"
        store.append([Ended(scope=SCOPE, server="old", code="connect_failed", message=message)])
    head = ledger("verify").split()[-1]
    told = ledger("redact")
    assert "secrets were removed from 1 form of how servers are started, and 1 message" in told
    assert head in told
    assert told.splitlines()[-1].startswith("intact: ")
    assert not any(b"hunter2" in path.read_bytes() for path in (state / "ledger").rglob("*") if path.is_file())
    assert ledger("verify").startswith("intact: ")
    assert "secrets were removed from it" in ledger("verify", "--against", head, code=ExitCode.BROKEN)
    assert "no secrets were found" in ledger("redact")
    assert ledger.document("redact")["redacted"]["launches"] == 0


def test_an_export_fills_an_empty_ledger_and_has_the_same_head(
    state: Path, ledger: LedgerShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup could not be restored, or a pipe would get nothing."""
    assert ledger("export", "-") == ledger("export")
    assert not Path("-").exists()
    head = ledger("verify").split()[-1]
    ledger("export", "backup.jsonl")
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(tmp_path / "other"))
    count, _, hash_ = head.partition(":")
    assert ledger.document("import", "backup.jsonl") == {"count": int(count), "hash": hash_}
    assert ledger("verify").split()[-1] == head
    ledger("import", "backup.jsonl", code=ExitCode.USAGE)
    assert "is not empty" in ledger.err
