"""Collect what the page shows, from the daemon's open decks and its ledger.

Nothing here waits for a server. What reads files or compares texts runs in threads.
"""

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from quarterdeck.config.load.trouble import Trouble
from quarterdeck.config.places.paths import ledger_dir, seals_dir, state_dir
from quarterdeck.config.secrets.masking import mask_row
from quarterdeck.daemon.control.call_story import CallStory, tell_call, with_receipt
from quarterdeck.daemon.control.protocol import Inspection, ServerView
from quarterdeck.daemon.control.views import view_inspection, view_server
from quarterdeck.daemon.decks import Deck
from quarterdeck.daemon.messages import ClientStatus, DaemonStatus
from quarterdeck.grants.denials import Proposal, objection_to, propose
from quarterdeck.grants.needs import known_of, writing_tools
from quarterdeck.grants.unused import GrantUse, find_uses, written_grants
from quarterdeck.ledger.events.chain import Verification
from quarterdeck.ledger.events.events import ORDER, hash_of
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck.ledger.events.history import HistoryLine, lines_of
from quarterdeck.ledger.grant_record import denied_calls, record_of
from quarterdeck.ledger.open import LedgerWriter
from quarterdeck.ledger.store.queries import CallRow, Selection
from quarterdeck.ledger.store.reader import LedgerReader
from quarterdeck.running_product import Product
from quarterdeck.seals.manifest import Changes, SealError, compare
from quarterdeck.seals.store import SealStore
from quarterdeck.trust.configured_servers import configured
from quarterdeck.trust.diff.changes import Change
from quarterdeck.trust.judge.documents import value_of
from quarterdeck.trust.judge.overview import Matter, ServerMatters, State, difference, renames, survey
from quarterdeck.trust.judge.server_rows import NativeRow, ServerRow
from quarterdeck.trust.judge.verdicts import Decision
from quarterdeck.trust.scan import KnownNames, scan_definition
from quarterdeck.trust.scan.tool_names import names_around, names_by_server
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.contract import EndpointStatus
from quarterdeck_sandbox import split_time

MAX_ITEMS: Final = 200
"""Held items of one server on one page; the next ones follow when these are decided."""

MAX_SHOWN_CHARS: Final = 300_000
"""Text of one server's changes that a page shows in whole; of more, it shows the beginnings first."""

LINES: Final = 100
"""Calls, or lines of history, on one page."""


LOG_BYTES: Final = 32 * 1024
"""Of the end of a server's log."""

DAYS: Final = 30
"""In which a grant that nothing used counts as unused."""


class ServerLook(msgspec.Struct, frozen=True):
    """One server of an open deck: its `place` is the token of its scope and id; `cpu_s` is None without a process that
    we confine.
    """

    deck: str
    place: str
    view: ServerView
    cpu_s: float | None


class DeckLook(msgspec.Struct, frozen=True):
    """One open deck."""

    key: str
    name: str
    files: tuple[str, ...]
    problem: str
    troubles: tuple[Trouble, ...]
    servers: tuple[ServerLook, ...]
    clients: tuple[ClientStatus, ...]


class ReviewItem(msgspec.Struct, frozen=True):
    """One thing that can be decided.

    Attributes:
        token: names it in the form that is shown; another form has another token.
        changes: what approving it changes; without any, `sameness` says why.
        is_chosen: whether the form approves it unless the person takes it out: the scan found nothing in it.
    """

    token: str
    key: ItemKey
    state: str
    changes: tuple[Change, ...]
    findings: tuple[tuple[str, str], ...]
    sameness: str
    is_chosen: bool


class ServerReview(msgspec.Struct, frozen=True):
    """Everything of one server that can be decided, and what confines it.

    Attributes:
        is_whole: whether `items` show all of their changes.
        more: how many items follow on the next page.
        packages: how the packages of its seal differ from those of the seal before; None if that is not known.
        inspections: of the server in each open deck that has it.
    """

    place: str
    server: ServerMatters
    items: tuple[ReviewItem, ...]
    is_whole: bool
    more: int
    renames: tuple[str, ...]
    packages: Changes | None
    inspections: tuple[Inspection, ...]


class ServerDetail(msgspec.Struct, frozen=True):
    """One server of an open deck, whole.

    Attributes:
        row: as it is written, without secrets; empty for none.
        uses: its grants, with what is known of their use.
        proposals: what its calls lacked.
        log: its last lines, each with its time.
    """

    look: ServerLook
    inspection: Inspection
    row: dict[str, object]
    uses: tuple[GrantUse, ...]
    proposals: tuple[Proposal, ...]
    log: tuple[tuple[str, str], ...]
    history: list[HistoryLine]


class DaemonState:
    """The daemon's decks and ledger; `status` returns its status. `problem` is why the user's own deck is not open;
    empty for none.
    """

    def __init__(self, decks: Iterable[Deck], status: Callable[[], DaemonStatus], recorder: LedgerWriter) -> None:
        self._decks = decks
        self.status: Final = status
        self._recorder = recorder
        self.problem = ""
        self._matters: tuple[object, tuple[ServerMatters, ...]] | None = None

    def products(self) -> Iterator[tuple[Deck, Product]]:
        """Yield every open deck with its product."""
        for deck in self._decks:
            if (served := deck.opened) is not None:
                yield deck, served.product

    def find(self, deck: str, place: str) -> tuple[Product, EndpointStatus] | None:
        """Return the server of this place in the deck with this key; None if there is none."""
        for found, product in self.products():
            for status in product.status().values() if found.key == deck else ():
                if token_of(product.scope(status.server) or "", status.server) == place:
                    return product, status
        return None

    def decks(self) -> tuple[DeckLook, ...]:
        """Return all open decks with their servers and clients."""
        clients = self.status().clients
        looks = []
        for deck, product in self.products():
            told = deck.status()
            servers = tuple(_look(deck.key, product, status) for status in product.status().values())
            troubles = tuple(each for each in told.troubles if not each.is_listed)
            mine = tuple(each for each in clients if each.deck == deck.key)
            looks.append(
                DeckLook(deck.key, told.name or told.command, told.files, told.problem, troubles, servers, mine)
            )
        return tuple(looks)

    async def matters(self) -> tuple[ServerMatters, ...]:
        """Return everything that can be decided, as `trust list` shows it."""
        book, products = self._recorder.book, [product for _, product in self.products()]
        # The same until an event or a row changes it: each page counts what waits, and ten thousand items take 60 ms.
        known = (book.last_seq, [(each.approvals.rows, each.settings.native_settings) for each in products])
        if self._matters is not None and self._matters[0] == known:
            return self._matters[1]
        rows: dict[tuple[str, str], ServerRow | NativeRow] = {}
        for product in products:
            rows |= {(row.scope, row.id): row for row in product.approvals.rows}
            if product.settings.native is not None:
                native = (await asyncio.to_thread(configured, product.settings)).native
                rows[native.scope, native.id] = native
        launches = (book.entry(row.scope, row.id).items.get(row.launch.key) for row in rows.values())
        bodies = await self._recorder.bodies(each.approved for each in launches if each is not None and each.approved)
        found = survey(book, rows.values(), bodies.get)
        self._matters = (known, found)
        return found

    async def matters_of(self, place: str) -> ServerMatters | None:
        """Return everything that can be decided of the server of this place; None if there is none."""
        return next((each for each in await self.matters() if token_of(each.scope, each.server) == place), None)

    async def review(self, place: str, *, whole: bool = False) -> ServerReview | None:
        """Return what can be decided of the server of this place; None if there is none.

        With `whole`, no change is cut, however long the page becomes.
        """
        found = await self.matters_of(place)
        if found is None:
            return None
        bodies = await self._recorder.bodies(
            digest for each in found.matters for digest in (each.seen, each.approved) if digest
        )
        matters = in_order(found.approvable)
        siblings = names_around(names_by_server(self._recorder.book), found.scope, found.server)
        items, is_whole = await asyncio.to_thread(items_of, matters[:MAX_ITEMS], bodies.get, siblings, whole=whole)
        likely = await asyncio.to_thread(renames, found, bodies.get)
        names = tuple(f"is {each.new} another name of {each.old}, which is gone?" for each in likely)
        inspections = tuple(
            inspect(*served) for deck, _ in self.products() if (served := self.find(deck.key, place)) is not None
        )
        changes = await asyncio.to_thread(self._package_changes, found.scope, found.server)
        return ServerReview(place, found, items, is_whole, len(matters) - len(items), names, changes, inspections)

    async def decisions(self, place: str, tokens: Sequence[str], *, approve: bool) -> list[Decision]:
        """Return the decisions for the items with these tokens; empty if one of them is not offered in that form."""
        found = await self.matters_of(place)
        return decisions_of(found, tokens, approve=approve) if found is not None else []

    async def calls(self, *, server: str = "", tool: str = "", client: str = "") -> list[CallRow]:
        """Return the last calls of this server, tool and client; empty for any."""
        for _, product in self.products():
            await product.write_calls()
        return await asyncio.to_thread(_read_calls, server or None, tool or None, client or None)

    async def story(self, number: int) -> CallStory | None:
        """Return the story of a call; None if it is not kept."""
        story = await asyncio.to_thread(_read_story, number)
        if story is None:
            return None
        for _, product in self.products():
            status = product.status_of(story.call.server)
            if status is not None and product.scope(status.server) == story.call.scope:
                story = with_receipt(story, inspect(product, status))
        return story

    async def detail(self, deck: str, place: str) -> ServerDetail | None:
        """Return one server of an open deck, whole; None if there is none."""
        found = self.find(deck, place)
        if found is None:
            return None
        product, status = found
        await product.write_calls()
        uses, proposals, history = await asyncio.to_thread(_read_record, product, status.server)
        origin = product.settings.origins.get(status.server)
        return ServerDetail(
            _look(deck, product, status),
            inspect(product, status),
            mask_row(origin.row) if origin is not None else {},
            uses,
            proposals,
            await asyncio.to_thread(_read_log, product, status.server),
            history,
        )

    async def history(self, wanted: Selection) -> list[HistoryLine]:
        """Return the last events that are wanted, as lines."""
        return await asyncio.to_thread(_read_lines, wanted)

    async def as_of(self, at: str) -> tuple[ServerMatters, ...]:
        """Return every server as it was at this time."""
        return await asyncio.to_thread(_read_survey, at)

    async def verify(self) -> Verification:
        """Check the whole ledger."""
        return await asyncio.to_thread(_verify)

    def _package_changes(self, scope: str, server: str) -> Changes | None:
        entry = self._recorder.book.entry(scope, server)
        if entry.seal is None or entry.last_seal is None:
            return None
        with suppress(SealError):
            seals = SealStore(seals_dir())
            now, before = seals.open(entry.seal.seal), seals.open(entry.last_seal.seal)
            return compare(before.manifest, now.manifest) if now is not None and before is not None else None
        return None


def token_of(*words: str) -> str:
    """Return a token of these words, for links and forms: the words may be anything, and of any length."""
    told = msgspec.json.encode([word.encode("utf-8", "surrogatepass") for word in words])
    return hashlib.sha256(told).hexdigest()[:32]


def _form_of(matter: Matter) -> str:
    """Return the token of a matter in the form in which it is offered."""
    return token_of(*matter.key, matter.seen)


def decisions_of(server: ServerMatters, tokens: Sequence[str], *, approve: bool) -> list[Decision]:
    """Return the decisions for the items with these tokens; empty if one of them is not offered in that form."""
    known = {_form_of(matter): matter for matter in server.approvable}
    chosen = [known[token] for token in tokens if token in known]
    if len(chosen) < len(tokens):
        return []
    return [
        Decision(server.scope, server.server, each.key, each.seen, each.body)
        if approve
        else Decision(server.scope, server.server, each.key)
        for each in chosen
    ]


def inspect(product: Product, status: EndpointStatus) -> Inspection:
    """Return all that is known of the confinement of a server."""
    return view_inspection(product, status, _look("", product, status).view)


def in_order(matters: Iterable[Matter]) -> list[Matter]:
    """Return the matters as a person reads them: the launch first, then by kind and name."""
    return sorted(matters, key=lambda matter: (ORDER[matter.key.subject], matter.key.name))


def _look(deck: str, product: Product, status: EndpointStatus) -> ServerLook:
    endpoint = product.fleet.endpoint(status.server)
    confined = endpoint.confined if endpoint is not None else None
    usage = confined.watch.present if confined is not None and confined.watch is not None else None
    is_there = usage is not None and status.pid is not None
    # As the monitor saw it last: walking all processes for each page would cost every call.
    memory = {status.pid: usage.memory_bytes} if usage is not None and status.pid is not None else {}
    view = view_server(product, status, memory)
    return ServerLook(
        deck,
        token_of(product.scope(status.server) or "", status.server),
        view,
        usage.cpu_s if usage is not None and is_there else None,
    )


def items_of(
    matters: Sequence[Matter], read: Callable[[str], bytes | None], siblings: KnownNames, *, whole: bool
) -> tuple[tuple[ReviewItem, ...], bool]:
    """Return the items of these matters, and whether they show all that changes; blocking."""
    differences = [difference([matter], read, whole=True) for matter in matters]
    chars = sum(len(change.before or "") + len(change.after or "") for each in differences for change in each.changes)
    if chars > MAX_SHOWN_CHARS and not whole:
        differences = [difference([matter], read) for matter in matters]
    return (
        tuple(
            ReviewItem(
                _form_of(matter),
                matter.key,
                matter.state.value,
                found.changes,
                findings,
                "" if found.changes else _sameness(matter),
                not findings and matter.state is not State.BLOCKED,
            )
            for matter, found in zip(matters, differences, strict=True)
            for findings in [_findings(matter, read, siblings)]
        ),
        all(each.is_whole for each in differences),
    )


def _findings(matter: Matter, read: Callable[[str], bytes | None], siblings: KnownNames) -> tuple[tuple[str, str], ...]:
    """Return what the scan finds in an offer; what was just listed may not have been scanned yet."""
    document = value_of(matter.body or read(matter.seen) or b"null")
    found = scan_definition(matter.key.subject, matter.key.name, document, siblings)
    return matter.findings or tuple((each.rule, each.place) for each in found)


def _sameness(matter: Matter) -> str:
    is_same = matter.seen == matter.approved
    return "nothing changed since it was approved" if is_same else "only its formatting changed"


def _reading() -> LedgerReader:
    return LedgerReader.open(ledger_dir(state_dir()))


def _read_story(number: int) -> CallStory | None:
    with _reading() as reader:
        return tell_call(reader, number)


def _read_survey(at: str) -> tuple[ServerMatters, ...]:
    with _reading() as reader:
        return survey(reader.book_at(at))


def _verify() -> Verification:
    with _reading() as reader:
        return reader.verify(hash_of)


def _read_record(product: Product, server: str) -> tuple[tuple[GrantUse, ...], tuple[Proposal, ...], list[HistoryLine]]:
    """Return a server's grants with their use, what is proposed for it, and its history."""
    config, scope, settings = product.config(server), product.scope(server) or "", product.settings
    history = _read_lines(Selection(scope=scope, server=server))
    origin = settings.origins.get(server)
    if not isinstance(config, StdioServerConfig) or origin is None:
        return (), (), history
    with _reading() as reader:
        denied, record = denied_calls(reader, scope, server), record_of(reader, scope, server, DAYS)
    own, offers = settings.paths_of(server), product.router.catalogue.servers.get(server)
    tools = {offers.calls[each.name].own: each.definition for each in offers.tools} if offers is not None else {}
    writing = writing_tools(known_of(config), {name: value_of(each or b"null") for name, each in tools.items()})
    objection = objection_to(config, own.home, own.tmp, settings.environ)
    written = written_grants(origin.row, config) or {}
    return (
        tuple(find_uses(config, written, settings.environ, record)),
        propose(denied, config.sandbox, writing, objection).found,
        history,
    )


def _read_log(product: Product, server: str) -> tuple[tuple[str, str], ...]:
    """Return the last lines of a server's standard error, without secrets."""
    try:
        with product.log_path(server).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES))
            lines = file.read(LOG_BYTES).splitlines()[-LINES:]
    except OSError:
        return ()
    split = map(split_time, lines)
    return tuple((at, product.redact(text.decode("utf-8", "replace"))) for at, text in split)


def _read_calls(server: str | None, tool: str | None, client: str | None) -> list[CallRow]:
    with _reading() as reader:
        return list(reader.calls(server=server, tool=tool, client=client, limit=LINES))


def _read_lines(wanted: Selection) -> list[HistoryLine]:
    with _reading() as reader:
        found: list[HistoryLine] = []
        for line in lines_of(reader.events(wanted, newest_first=True)):
            found.append(line)
            if len(found) == LINES:
                break
        return found
