"""What the ledger knows of a server's grants: calls that were denied something, and whether there were calls."""

from datetime import UTC, datetime, timedelta

from quarterdeck.grants.denials import DeniedCall
from quarterdeck.grants.unused import Record

from .events.events import Subject
from .store.queries import Selection
from .store.reader import LedgerReader


def denied_calls(reader: LedgerReader, scope: str, server: str) -> list[DeniedCall]:
    """Return the calls of a server that its sandbox denied something, the last one first."""
    calls = reader.calls(scope=scope, server=server, is_denied=True)
    return [DeniedCall(call.at, call.tool, call.program or call.client, call.denied) for call in calls]


def record_of(reader: LedgerReader | None, scope: str, server: str, days: int) -> Record:
    """Return what the ledger has of a server in the last days; None for no ledger."""
    since = datetime.now(UTC) - timedelta(days=days)
    at = since.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if reader is None:
        return Record(days, at, 0, "", "")
    calls = sum(1 for _ in reader.calls(server=server, since=at))  # of any scope: a file may be named or found
    approved = reader.events(Selection(scope=scope, server=server, kinds=("approve",)), newest_first=True)
    launches = (each.at for each in approved if getattr(each.event, "subject", None) is Subject.LAUNCH)
    return Record(days, at, calls, reader.first_call_at(), next(launches, ""))
