"""Write what is shown as HTML. Pure: values in, text out; no template runs code of its own, and none has a script.

Everything that a template prints is cleaned like everything on a terminal, then escaped: texts come from servers too.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple
from urllib.parse import urlencode

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from quarterdeck.common.words import clipped, counted, duration, flat, how_it_ended, printable, size
from quarterdeck.daemon.control.protocol import FaultView, LimitView, ServerView
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck.ledger.events.history import short
from quarterdeck.ledger.store.queries import CallRow
from quarterdeck.trust.judge.overview import ServerMatters

from .state import DeckLook, ServerLook, token_of

MAX_LINE_CHARS: Final = 400
"""Of one text on one line: a server's message or a name can be a million characters long."""


class Frame(msgspec.Struct, frozen=True):
    """What every page shows around its own content.

    Attributes:
        root: the path below which all pages are.
        view: the name of the view in the navigation.
        may_act: whether forms are shown.
        token_of: returns the token of the form that posts to a path.
        waiting: how many items await a decision.
        said: the outcome of the form that was posted last.
        live: whether the page follows what happens.
    """

    root: str
    view: str
    may_act: bool
    token_of: Callable[[str], str]
    waiting: int = 0
    said: str = ""
    live: bool = False


class Attention(NamedTuple):
    """Something that a person should look at: `action` is `review`, `restart` or empty, for none that we offer."""

    tone: str
    look: ServerLook
    title: str
    text: str
    fix: str = ""
    action: str = ""


def render(template: str, frame: Frame, **values: object) -> str:
    """Return the HTML of a template."""
    return _environment().get_template(template).render(frame=frame, **values)


def attention_of(decks: Iterable[DeckLook]) -> list[Attention]:
    """Return what a person should look at, the most urgent first."""
    found = [each for deck in decks for look in deck.servers for each in _attention(look)]
    return sorted(found, key=lambda each: _TONES.index(each.tone))


_TONES: Final = ("held", "fault", "warning")

_HELD_FAULTS: Final = frozenset({"launch_held", "launch_blocked"})
"""Codes of faults that a decision mends."""


def _attention(look: ServerLook) -> Iterable[Attention]:
    view = look.view
    if view.held:
        what = f"{counted(view.held, 'item')} of {view.id} held"
        yield Attention(
            "held", look, what, "New or changed since it was approved: clients see none of it.", "", "review"
        )
    if (fault := view.fault) is not None:
        is_held = fault.code in _HELD_FAULTS
        action = "review" if is_held else "restart" if view.transport is not None else ""
        title = f"{view.id} is {'held' if is_held else view.phase}: {fault.code or fault.kind}"
        yield Attention("held" if is_held else "fault", look, title, fault.message, fault.remedy or "", action)
    if view.sandbox is not None:
        for caught in view.sandbox.caught:
            yield Attention("warning", look, f"{view.id} made a file for others to run", caught)
        if view.sandbox.hint:
            yield Attention("warning", look, f"{view.id} lacked something", view.sandbox.hint)
    if view.changed:
        files = ", ".join(view.changed)
        yield Attention("warning", look, f"{view.id} changed since it was approved", files, "", "review")


def _clean(value: object) -> object:
    """Return what a template prints: nothing for None, and no control characters, on one line that has an end."""
    if value is None or isinstance(value, Markup):
        return "" if value is None else value
    return clipped(flat(str(value)), MAX_LINE_CHARS)


def _block(text: str) -> Markup:
    """Return a text of several lines, for `<pre>`."""
    return Markup(escape(printable(text)))  # noqa: S704 - escaped here


def _pretty(document: object) -> Markup:
    """Return a JSON value, or the bytes of one, over several lines."""
    value = msgspec.json.decode(document) if isinstance(document, bytes | msgspec.Raw) else document
    return _block(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def _link(path: str, **query: object) -> Markup:
    """Return a link with a query, whatever is in it."""
    told = {key: str(value) for key, value in query.items() if value not in (None, "")}
    return Markup(escape(f"{path}?{urlencode(told, errors='replace')}" if told else path))  # noqa: S704 - escaped here


def place_of(server: ServerMatters) -> str:
    """Return the token by which links name a server."""
    return token_of(server.scope, server.server)


def _key_words(key: ItemKey) -> str:
    """Return a tool's name; for other items name and kind."""
    if key.subject.value == "tool":
        return key.name
    return f"{key.name} ({key.subject.value})" if key.name else key.subject.value


def _tools(view: ServerView) -> str:
    counts = [f"{count} {what}" for count, what in ((view.held, "held"), (view.blocked, "blocked")) if count]
    return ", ".join((str(view.tools), *counts))


def _dossier(fault: FaultView) -> list[str]:
    """Return how the process of a fault ended, with its last words."""
    dossier = fault.dossier
    if dossier is None:
        return []
    said = [f"stderr: {line}" for line in dossier.stderr_tail.splitlines()[-_TAIL_LINES:] if line.strip()]
    return [line for line in (how_it_ended(dossier), *dossier.hints, *said) if line]


_TAIL_LINES: Final = 5


def _policy(document: msgspec.Raw) -> Mapping[str, object]:
    """Return a policy without its limits and empty parts."""
    told = msgspec.json.decode(document)
    if not isinstance(told, dict):
        return {}
    return {
        key: ", ".join(map(str, value)) if isinstance(value, list) else value
        for key, value in told.items()
        if key != "limits" and value not in (None, [])
    }


def _amount(limit: LimitView, value: float | None) -> str:
    """Return a limit's number in its unit."""
    if value is None:
        return "–"
    if limit.name.endswith("bytes"):
        return size(int(value))
    return duration(value) if limit.name.endswith("_s") else f"{value:g}"


def _when(at: str) -> str:
    """Return a time of the ledger to the second, in UTC; a dash for none."""
    return at[:19].replace("T", " ") or "–"


def _spent(spent_ms: float) -> str:
    """Return what a call waited; a dash for less than a millisecond."""
    return duration(spent_ms / 1000) if spent_ms >= 1 else "–"


def _outcome_class(call: CallRow) -> str:
    return {"ok": "ok", "error": "partial"}.get(call.outcome, "faulted")


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    tools: Sequence[Callable[..., object]] = (
        *(
            size,
            duration,
            counted,
            place_of,
            short,
            _block,
            _pretty,
            _link,
            _key_words,
            _tools,
            _dossier,
            _policy,
            _amount,
            _spent,
            _when,
            _outcome_class,
        ),
    )
    made.globals |= {tool.__name__.lstrip("_"): tool for tool in tools}
    return made
