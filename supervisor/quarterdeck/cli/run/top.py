"""`quarterdeck top`: what runs and what waits for approval, in the terminal; it needs the extra `tui`."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.widgets import DataTable, Footer, Header, Static, TabbedContent, TabPane

from quarterdeck.cli.exits import CommandError
from quarterdeck.cli.output import describe_key
from quarterdeck.cli.source import Source, answer_of
from quarterdeck.cli.trust.context import open_context, send
from quarterdeck.common.words import duration, flat, printable, size
from quarterdeck.config.places.runtime_directory import find_all_serving
from quarterdeck.daemon.control.protocol import Ps, Restart, ServerList
from quarterdeck.page.state import (
    MAX_ITEMS,
    DeckLook,
    ReviewItem,
    ServerLook,
    decisions_of,
    in_order,
    items_of,
)
from quarterdeck.page.views import attention_of
from quarterdeck.trust.judge.overview import ServerMatters
from quarterdeck.trust.judge.verdicts import Decision
from quarterdeck.trust.scan.tool_names import names_around, names_by_server

LOOK_S: Final = 2.0
"""Between two looks at what runs and waits."""

STYLES: Final = {"ready": "green", "asleep": "dim", "faulted": "bold red"}


class Held(NamedTuple):
    """One item that waits; `is_whole` if all of its changes are shown."""

    server: ServerMatters
    item: ReviewItem
    is_whole: bool


class World(NamedTuple):
    """What is shown at one moment."""

    decks: tuple[DeckLook, ...]
    held: tuple[Held, ...]


def look_around() -> World:
    """Look at every deck that runs, and at what waits in the ledger; blocking. May raise CommandError."""
    decks = []
    for directory, serving in find_all_serving().items():
        answer = answer_of(directory, Ps())
        if isinstance(answer, ServerList):
            servers = tuple(ServerLook(str(directory), "", view, None) for view in answer.servers)
            name = serving.deck or serving.words
            decks.append(DeckLook(str(directory), name, serving.config_paths, "", answer.troubles, servers, ()))
    held = []
    with open_context(Source()) as context:
        names = names_by_server(context.book)
        for server in context.servers:
            siblings = names_around(names, server.scope, server.server)
            for matter in in_order(server.waiting)[:MAX_ITEMS]:
                [item], is_whole = items_of([matter], context.read, siblings, whole=False)
                held.append(Held(server, item, is_whole))
    return World(tuple(decks), tuple(held))


def restart(look: ServerLook) -> None:
    """Restart a server, and wait until it is ready or has failed; blocking."""
    answer_of(Path(look.deck), Restart(look.view.id))


class Top(App[None]):
    """Two tables that follow what happens; `a` and `b` decide the item whose changes are shown."""

    TITLE = "Quarterdeck"
    ENABLE_COMMAND_PALETTE = False
    CSS = (
        "#attention { padding: 0 1; height: auto; max-height: 50%; } DataTable { height: 1fr; } #change { padding: 1; }"
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        ("n", "show('now')", "Now"),
        ("v", "show('review')", "Review"),
        ("r", "restart", "Restart"),
        ("a", "decide(True)", "Approve"),
        ("b", "decide(False)", "Block"),
        ("q", "quit", "Quit"),
    ]

    def __init__(
        self,
        look: Callable[[], World] = look_around,
        decide: Callable[[Sequence[Decision]], None] = send,
        start_again: Callable[[ServerLook], None] = restart,
    ) -> None:
        super().__init__()
        self._look_around = look
        self._decide = decide
        self._restart = start_again
        self._world = World((), ())

    def compose(self) -> ComposeResult:
        """See `App`."""
        yield Header()
        with TabbedContent(initial="now"):
            with TabPane("Now", id="now"):
                yield Static(id="attention")
                yield DataTable[Text](id="servers", cursor_type="row")
            with TabPane("Review", id="review"):
                yield DataTable[Text](id="items", cursor_type="row")
                with VerticalScroll():
                    yield Static(id="change")
        yield Footer()

    async def on_mount(self) -> None:
        """Begin to look."""
        self._table("servers").add_columns("Server", "Phase", "Tools", "Sandbox", "Memory", "Up", "Deck")
        self._table("items").add_columns("Server", "What", "State", "Scan")
        self.set_interval(LOOK_S, self.look)
        await self.look()

    async def look(self, *, is_decided: bool = False) -> None:
        """Show everything as it is now; what is held only outside of its view, or once something `is_decided`."""
        try:
            world = await asyncio.to_thread(self._look_around)
        except CommandError as error:
            self.sub_title = flat(error.message)
            return
        if not self.query("#attention"):
            return  # it was left meanwhile
        # While a person reads what is held, it stays: no other item comes under their cursor.
        is_read = self.query_one(TabbedContent).active == "review" and not is_decided
        self._world = World(world.decks, self._world.held if is_read else world.held)
        self.sub_title = f"{len(world.held)} held"
        text = Text()
        for each in attention_of(world.decks):
            text.append(f"{flat(each.title)}: ", "bold red" if each.tone == "fault" else "bold yellow")
            text.append(f"{flat(each.text)}\n")
            if each.fix:
                text.append(f"  fix: {flat(each.fix)}\n", "dim")
        self.query_one("#attention", Static).update(text)
        self._fill("servers", [self._server_row(deck, look) for deck in world.decks for look in deck.servers])
        self._fill("items", [self._item_row(each) for each in self._world.held])
        self._show_change()

    def on_data_table_row_highlighted(self) -> None:
        """Show the changes of the item under the cursor."""
        self._show_change()

    def action_show(self, tab: str) -> None:
        """Show one of the two views."""
        self.query_one(TabbedContent).active = tab
        self._table("servers" if tab == "now" else "items").focus()

    async def action_restart(self) -> None:
        """Restart the server under the cursor."""
        looks = [look for deck in self._world.decks for look in deck.servers]
        row = self._table("servers").cursor_row
        if self.query_one(TabbedContent).active == "now" and row < len(looks):
            await self._carry_out(lambda: self._restart(looks[row]), f"{flat(looks[row].view.id)} is started again")

    async def action_decide(self, approve: bool) -> None:
        """Approve or block the item whose changes are shown."""
        held = self._chosen()
        if held is None or self.query_one(TabbedContent).active != "review":
            return
        if approve and not held.is_whole:
            self.notify("Too long to be shown whole: quarterdeck trust diff --whole", severity="warning")
            return
        decisions = decisions_of(held.server, [held.item.token], approve=approve)
        done = f"{flat(describe_key(held.item.key))} is {'approved' if approve else 'blocked'}"
        await self._carry_out(lambda: self._decide(decisions), done)

    async def _carry_out(self, work: Callable[[], None], done: str) -> None:
        try:
            await asyncio.to_thread(work)
            self.notify(done, markup=False)
        except CommandError as error:
            self.notify(f"{flat(error.message)}; {flat(error.remedy)}", severity="error", markup=False)
        await self.look(is_decided=True)

    def _chosen(self) -> Held | None:
        row = self._table("items").cursor_row
        return self._world.held[row] if row < len(self._world.held) else None

    def _show_change(self) -> None:
        held, text = self._chosen(), Text()
        for rule, place in held.item.findings if held is not None else ():
            text.append(f"scan: {rule} at {flat(place) or 'the whole'}\n", "bold red")
        for change in held.item.changes if held is not None else ():
            text.append(f"{change.severity.value}: {flat(change.sentence)}\n", "bold")
            text.append(f"{printable(change.before)}\n" if change.before is not None else "", "red")
            text.append(f"{printable(change.after)}\n" if change.after is not None else "", "green")
        self.query_one("#change", Static).update(text if held is not None else Text("Nothing is held.", "dim"))

    def _table(self, id_: str) -> DataTable[Text]:
        return self.query_one(f"#{id_}", DataTable)

    def _fill(self, id_: str, rows: Sequence[Sequence[Text]]) -> None:
        table = self._table(id_)
        row = table.cursor_row
        table.clear()
        for each in rows:
            table.add_row(*each)
        table.move_cursor(row=row)

    def _server_row(self, deck: DeckLook, look: ServerLook) -> list[Text]:
        view = look.view
        memory = size(view.memory_bytes) if view.memory_bytes is not None else "-"
        uptime = duration(view.uptime_s) if view.uptime_s is not None else "-"
        tools = f"{view.tools}" + (f", {view.held} held" if view.held else "")
        sandbox = view.sandbox.tier if view.sandbox is not None else "-"
        cells = [view.id, view.phase, tools, sandbox, memory, uptime, deck.name]
        return [Text(flat(cell), STYLES.get(view.phase, "") if at == 1 else "") for at, cell in enumerate(cells)]

    def _item_row(self, held: Held) -> list[Text]:
        found = ", ".join(dict.fromkeys(rule for rule, _ in held.item.findings))
        what = flat(describe_key(held.item.key))
        return [Text(flat(held.server.server)), Text(what), Text(held.item.state), Text(found, "red")]
