"""One server and its ledger, to be judged."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from quarterdeck.ledger.events.events import Approved, Authority, Blocked, LedgerEvent, Stored, Subject
from quarterdeck.ledger.events.fold import Book, Entry, ItemKey
from quarterdeck.trust.judge.documents import Document, hash_of
from quarterdeck.trust.judge.launches import Launch
from quarterdeck.trust.judge.server_rows import OtherForm, Rules, ServerRow
from quarterdeck.trust.judge.verdicts import Verdict, judge_launch, judge_listing
from quarterdeck_protocol.configs import StdioServerConfig, TrustMode

SCOPE, SERVER = "/home/me/deck.json", "s"
BASELINE, STRICT, OPEN = Rules(), Rules(TrustMode.STRICT), Rules(TrustMode.OPEN)
AT = "2026-01-02T03:04:05.678Z"
INSTRUCTIONS: Final = ItemKey(Subject.INSTRUCTIONS)
LAUNCH: Final = ItemKey(Subject.LAUNCH)


def row(rules: Rules, document: Document | None = None, other_form: OtherForm | None = None) -> ServerRow:
    config = StdioServerConfig(id=SERVER, command="run")
    return ServerRow(config, SCOPE, rules, Launch(document or launch()), other_form)


def tool(name: str, form: int = 0) -> Document:
    return document(ItemKey(Subject.TOOL, name), form)


def instructions(form: int = 0) -> Document:
    return document(INSTRUCTIONS, form)


def launch(form: int = 0) -> Document:
    return document(LAUNCH, form)


def document(key: ItemKey, form: int) -> Document:
    body = b'["%s", "%s", %d]' % (key.subject.encode(), key.name.encode(), form)
    return Document(key, hash_of(body), body)


@dataclass
class ServerState:
    """One server's ledger, and what is done with a judgement: its events are recorded."""

    book: Book = field(default_factory=Book)
    seqs: "count[int]" = field(default_factory=lambda: count(1))

    @property
    def entry(self) -> Entry:
        return self.book.entry(SCOPE, SERVER)

    def record(self, events: Iterable[LedgerEvent]) -> None:
        for event in events:
            self.book.apply(Stored(next(self.seqs), AT, event))

    def lists(self, *documents: Document, rules: Rules = BASELINE) -> Mapping[ItemKey, Verdict]:
        judgement = judge_listing(row(rules), self.entry, documents)
        self.record(judgement.events)
        return judgement.verdicts

    def launches(
        self, document: Document, rules: Rules = BASELINE, other_form: OtherForm | None = None, **around: Any
    ) -> Verdict:
        judgement = judge_launch(row(rules, document, other_form), self.entry, **around)
        self.record(judgement.events)
        return judgement.verdicts[LAUNCH]

    def approve(self, document: Document) -> None:
        self.record([Approved(**about(document.key), hash=document.hash, by=Authority.PERSON)])

    def block(self, key: ItemKey) -> None:
        self.record([Blocked(**about(key))])


def about(key: ItemKey) -> dict[str, object]:
    return {"scope": SCOPE, "server": SERVER, "subject": key.subject, "name": key.name}


@dataclass(frozen=True)
class OnlyThese:
    """A lock that names some forms."""

    hashes: frozenset[str]

    def admits(self, document: Document) -> bool:
        return document.hash in self.hashes


def locked(*documents: Document, mode: TrustMode = TrustMode.BASELINE) -> Rules:
    return Rules(mode, lock=OnlyThese(frozenset(each.hash for each in documents)))
