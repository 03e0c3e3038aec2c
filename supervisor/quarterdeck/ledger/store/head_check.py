"""Hold a ledger against a head that was kept elsewhere: in a `deck.lock`, or written down.  Blocking; reads only."""

from quarterdeck.ledger.events.chain import Head
from quarterdeck.ledger.events.events import Checkpoint
from quarterdeck.ledger.events.json_lines import DocumentLine

from . import archive, rows
from .read import LedgerReader


def contradiction(reader: LedgerReader, witness: Head) -> str:
    """Why the ledger is not one that once ended with `witness`; empty when it is.

    Raises:
        ArchivedError: the event is archived, and its archive is not there.
        LedgerError: something cannot be read.
    """
    head = reader.head
    if witness.count > head.count:
        return (
            f"it ends at event {head.count}, and once had {witness.count}: the last ones are gone, "
            "or it is another ledger"
        )
    if _hash_at(reader, witness.count) != witness.hash:
        if (redacted := _redacted_at(reader, witness)) is not None:
            return (
                f"secrets were taken out of it, as event {redacted} records: the events before that have other "
                "hashes since, and a head that was written down before does not fit any more"
            )
        return f"event {witness.count} is not the one that was noted: it was changed, or it is another ledger"
    return ""


def _redacted_at(reader: LedgerReader, witness: Head) -> int | None:
    """The event by which the ledger tells that secrets were taken out of what the witness saw; None for none."""
    for stored in reader.events(kinds=("checkpoint",), after_seq=witness.count, archived=True):
        if isinstance(stored.event, Checkpoint) and stored.event.redacted:
            return stored.seq
    return None


def _hash_at(reader: LedgerReader, seq: int) -> str:
    """The hash of an event; of number 0, what stands before the first."""
    start = reader.start
    if seq == 0:
        return Head().hash
    if seq >= start.count:
        with reader.reading():
            return rows.head_at(reader.connection, seq, start).hash
    for path, begin in archive.segments(reader.directory, start):
        if seq == begin.count:
            return begin.hash
        if seq > begin.count:
            rows_of_file = (each[0] for each in archive.pieces(path) if not isinstance(each, DocumentLine))
            return next((row.hash.hex() for row in rows_of_file if row.seq == seq), "")
    return ""
