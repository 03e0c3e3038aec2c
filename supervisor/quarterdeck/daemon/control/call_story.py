"""One call's whole story, from the ledger: who made it, which way it went, what was decided then, how it ended.

The receipt of its server is no part of the ledger: `with_receipt` adds it while the process that took the call lives.
Blocking, but for that.
"""

from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Any, Final

import msgspec

from quarterdeck.ledger.dossier import read_dossier
from quarterdeck.ledger.events.events import LISTED, Began, Ended, Stored, Subject
from quarterdeck.ledger.events.fold import Book, ItemKey
from quarterdeck.ledger.events.history import in_words, thing
from quarterdeck.ledger.store.queries import CallRow, Selection
from quarterdeck.ledger.store.reader import LedgerReader
from quarterdeck.trust.judge.documents import value_of
from quarterdeck.trust.judge.overview import Matter, survey
from quarterdeck_protocol.faults import fill_remedy

from .protocol import FaultView, Inspection, ReceiptView

AROUND: Final = 4
"""Starts and ends of the server that are told on each side of the call."""

GONE: Final = "the process that took the call has ended, and with it what was observed of its sandbox"
NO_PROCESS: Final = "no process of this machine took the call"
NONE_RAN: Final = "no process of the server had begun"


class Judgement(msgspec.Struct, frozen=True):
    """What was decided about one thing of the server; a hash is empty for nothing.

    Attributes:
        what: in words, such as `tool read`.
        state: see `State`; empty if it had never been seen.
        offered, approved: hashes of the forms.
        by, at: who approved or blocked it, and when.
    """

    what: str
    state: str = ""
    offered: str = ""
    approved: str = ""
    by: str = ""
    at: str = ""


class Moment(msgspec.Struct, frozen=True):
    """One event of the ledger, in words."""

    seq: int
    at: str
    what: str


class CallStory(msgspec.Struct, frozen=True):
    """A call, and what the ledger knows around it.

    Attributes:
        began_at: when it was asked; it then waited `queued_ms`, `woke_ms`, and took `duration_ms`.
        transport: of the server, as its launch says.
        source: its command line or its URL, without secrets.
        package, seal: what it ran from; empty where that is not known.
        verdicts: of its launch, and of what was called.
        life: the start of the process that took the call; None where none had begun.
        pid: of that process.
        before, after: other starts and ends around the call, in their order.
        policy: its sandbox, as its row says.
        receipt: what was observed of it; `note` says why there is none.
    """

    call: CallRow
    began_at: str
    fault: FaultView | None = None
    transport: str = ""
    source: str = ""
    package: str = ""
    seal: str = ""
    verdicts: tuple[Judgement, ...] = ()
    life: Moment | None = None
    pid: int | None = None
    before: tuple[Moment, ...] = ()
    after: tuple[Moment, ...] = ()
    policy: Any = None
    receipt: ReceiptView | None = None
    note: str = NONE_RAN


def tell_call(reader: LedgerReader, number: int) -> CallStory | None:
    """Return the story of the call of this number; None if it is not kept.  Raises `LedgerError`."""
    call = next((each for each in reader.calls(after=number - 1, limit=1) if each.number == number), None)
    if call is None:
        return None
    of_server = Selection(scope=call.scope, server=call.server)
    then = list(takewhile(lambda each: each.seq <= call.seq, reader.events(of_server)))
    later = reader.events(Selection(scope=call.scope, server=call.server, kinds=_LIVES, after_seq=call.seq))
    after = list(islice(later, AROUND))
    lives = [each for each in then if isinstance(each.event, Began | Ended)]
    life = lives[-1] if lives and isinstance(lives[-1].event, Began) else None
    entry = Book.of(then).entry(call.scope, call.server)
    matters = {matter.key: matter for server in survey(Book.of(then)) for matter in server.matters}
    launch = matters.get(ItemKey(Subject.LAUNCH))
    started = value_of((reader.document(launch.approved or launch.seen) if launch is not None else None) or b"null")
    row: dict[str, Any] = started if isinstance(started, dict) else {}
    words = (row.get("command"), *(row.get("args") or ())) if row.get("command") else (row.get("url"),)
    began = life.event if life is not None and isinstance(life.event, Began) else None
    ran = began or entry.last_life or Began(scope=call.scope, server=call.server)
    return CallStory(
        call=call,
        began_at=_earlier(call.at, call.queued_ms + call.woke_ms + call.duration_ms),
        fault=_fault_of(call),
        transport=str(row.get("transport", "")),
        source=" ".join(str(word) for word in words if word),
        package=ran.package or ran.program,
        seal=ran.seal,
        verdicts=(_judgement(ItemKey(Subject.LAUNCH), launch), *_judgements(call.tool, matters)),
        life=_moment(life) if life is not None else None,
        pid=began.pid if began is not None else None,
        before=tuple(_moment(each) for each in lives[-AROUND - 1 :] if each is not life),
        after=tuple(map(_moment, after)),
        policy=row.get("sandbox"),
        note=NONE_RAN if began is None else NO_PROCESS if began.pid is None else GONE,
    )


def with_receipt(story: CallStory, inspection: Inspection | None) -> CallStory:
    """Return the story with what was observed of the server's sandbox, if the same process still runs."""
    if inspection is None or story.pid is None or inspection.server.pid != story.pid or story.after:
        return story
    return msgspec.structs.replace(story, receipt=inspection.receipt, note=inspection.note)


_LIVES: Final = ("began", "ended")


def _judgements(tool: str, matters: dict[ItemKey, Matter]) -> tuple[Judgement, ...]:
    """Return the verdict on a tool, or on what a noted request (`prompts/get NAME`) was for."""
    keys = [ItemKey(Subject.TOOL, tool)]
    _, blank, name = tool.partition(" ")
    if blank and "/" in tool and keys[0] not in matters:
        keys = [key for key in matters if key.subject in LISTED and key.name == name]
    elif "/" in tool and keys[0] not in matters:
        keys = []  # a method that names nothing
    return tuple(_judgement(key, matters.get(key)) for key in keys)


def _judgement(key: ItemKey, matter: Matter | None) -> Judgement:
    what = thing(*key)
    if matter is None:
        return Judgement(what)
    return Judgement(what, matter.state, matter.seen, matter.approved, matter.by or "", matter.at)


def _fault_of(call: CallRow) -> FaultView | None:
    kept = read_dossier(call.dossier)
    if kept is None:
        return None
    said = f"its JSON-RPC error {kept.reply_code}; its text is not kept" if kept.reply_code is not None else ""
    remedy = fill_remedy(kept.remedy, call.server) if kept.remedy else None
    return FaultView(kept.kind, call.code, kept.message or said, remedy, call.delivery, kept.dossier)


def _moment(stored: Stored) -> Moment:
    return Moment(stored.seq, stored.at, in_words(stored.event).what)


def _earlier(at: str, milliseconds: float) -> str:
    began = datetime.fromisoformat(at) - timedelta(milliseconds=milliseconds)
    return began.isoformat(timespec="milliseconds").replace("+00:00", "Z")
