"""What is said of readiness, and to whom."""

import json
from pathlib import Path

import pytest

from quarterdeck.host.http import readiness
from quarterdeck.host.http.readiness import Obstacle, Unready, encode_readiness, ledger_obstacles

FAILED = Unready(Obstacle.SERVER_FAILED, "notes", "npx does not exist")
OPENING = Unready(Obstacle.DECK_OPENING, "user")


def test_a_stranger_is_told_kinds_alone_and_each_once() -> None:
    """The number, names and programs of the servers would be known to whoever can connect."""
    status, body = encode_readiness([FAILED, OPENING, FAILED], in_full=False)
    assert status == 503
    reasons = [{"kind": "deck_opening"}, {"kind": "server_failed"}]
    assert json.loads(body) == {"ready": False, "reasons": reasons}
    status, body = encode_readiness(iter([FAILED, OPENING]), in_full=True)
    assert [reason["name"] for reason in json.loads(body)["reasons"]] == ["notes", "user"]
    assert encode_readiness([], in_full=False) == (200, b'{"ready":true,"reasons":[]}')


def test_a_ledger_that_cannot_be_written_is_an_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests would come to a daemon that can record no decision, and whose calls are in no ledger."""
    assert [each.kind for each in ledger_obstacles(tmp_path)] == [Obstacle.LEDGER]
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger" / "ledger.db").touch()
    assert list(ledger_obstacles(tmp_path)) == []
    monkeypatch.setattr(readiness, "MIN_FREE_BYTES", 1 << 62)
    assert [each.why for each in ledger_obstacles(tmp_path)] == [f"the disk of {tmp_path / 'ledger'} is full"]
