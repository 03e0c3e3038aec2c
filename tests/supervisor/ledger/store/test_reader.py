"""A ledger against a head that was kept elsewhere."""

from pathlib import Path

import pytest
from support.ledger.histories import fill

from quarterdeck.ledger.events.chain import Head
from quarterdeck.ledger.store.reader import LedgerReader, contradiction


def contradicted(state: Path, witness: Head) -> str:
    with LedgerReader.open(state / "ledger") as reader:
        return contradiction(reader, witness)


@pytest.fixture
def heads(tmp_path: Path) -> list[Head]:
    """The heads after each day of the story; the ledger has them all."""
    kept = []
    for days in (1, 2, 3):
        state = tmp_path / f"day{days}"
        fill(state, days=days)
        with LedgerReader.open(state / "ledger") as reader:
            kept.append(reader.head)
    return kept


def test_a_ledger_agrees_with_every_head_that_it_ever_had(tmp_path: Path, heads: list[Head]) -> None:
    """A lock that was written last week would fail today."""
    for head in (Head(), *heads):
        assert contradicted(tmp_path / "day3", head) == ""


def test_events_that_are_gone_show(tmp_path: Path, heads: list[Head]) -> None:
    """Somebody could take back the last decisions, and the ledger's own head with them."""
    said = contradicted(tmp_path / "day2", heads[2])
    assert f"ends at event {heads[1].count}, and once had {heads[2].count}" in said


def test_an_event_that_was_changed_shows(tmp_path: Path, heads: list[Head]) -> None:
    """Somebody could rewrite the whole chain, and its own head with it."""
    said = contradicted(tmp_path / "day3", Head(heads[1].count, "ab" * 32))
    assert f"event {heads[1].count} is not the one" in said
    assert contradicted(tmp_path / "day3", Head(0, "ab" * 32)) != ""
