"""Verdicts on lists: what is declared, pages, the same list twice, both eras.  Pure."""

from collections.abc import Iterator
from typing import Final

from quarterdeck.check.episode import MEMBERS, Episode, Exchange, Recording, items_of
from quarterdeck.check.schemas import shown
from quarterdeck.check.verdicts import Verdict
from quarterdeck_protocol.mcp.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND
from quarterdeck_protocol.schema.canonical import JsonValue, canonical_json

from .shapes import error_words, refusal_problem, shape_problem, unanswered

KEY: Final = {"tools": "name", "prompts": "name", "resources": "uri", "resourceTemplates": "uriTemplate"}
"""What tells the items of a list apart."""


def judge(recording: Recording) -> Iterator[Verdict]:
    """See the module."""
    for episode in recording.episodes:
        for method in MEMBERS:
            if pages := episode.of(f"list:{method}"):
                yield from _list(method, pages, episode)
            for exchange in episode.of(f"undeclared:{method}"):
                count = len(items_of(exchange))
                words = (
                    f"{method} answers with {count}, and capabilities do not name {MEMBERS[method]}" if count else ""
                )
                yield Verdict("capability-declared", words, episode.name if count else "")
        yield from _twice(episode)
        for unknown in episode.of("unknown-cursor"):
            yield Verdict("unknown-cursor", refusal_problem(unknown, INVALID_PARAMS), episode.name)
    yield from _both_eras(recording)


def _list(method: str, pages: list[Exchange], episode: Episode) -> Iterator[Verdict]:
    first = pages[0]
    is_unknown = first.error_code == METHOD_NOT_FOUND
    if first.error is not None and not is_unknown:
        yield Verdict("list-answered", error_words(first), method)
        return
    if first.result is None:
        is_optional = method == "resources/templates/list" and is_unknown
        words = error_words(first) if is_unknown else unanswered(first)
        yield Verdict("capability-kept", "" if is_optional else words, method)
        return
    yield Verdict("list-answered")
    yield Verdict("capability-kept")
    for page in pages:
        yield Verdict("list-shape", shape_problem(page, episode), f"{method}, {episode.name}")
    yield Verdict("list-pages", _pages_problem(pages), method)


def _pages_problem(pages: list[Exchange]) -> str:
    cursors = [page.result_members.get("nextCursor") for page in pages]
    told = [cursor for cursor in cursors if isinstance(cursor, str)]
    if len(set(told)) < len(told):
        return "a cursor comes back: the pages have no end"
    if isinstance(cursors[-1], str):
        return unanswered(pages[-1]) or f"there are more than {len(pages)} pages"
    if pages[-1].result is None:
        return error_words(pages[-1]) if pages[-1].error is not None else unanswered(pages[-1])
    return ""


def _twice(episode: Episode) -> Iterator[Verdict]:
    pages, again = episode.of("list:tools/list"), episode.one("again:tools/list")
    if not pages or again is None or again.result is None:
        return
    before, after = items_of(pages[0]), items_of(again)
    problem = ""
    if _text(before) != _text(after):
        names = _names(before), _names(after)
        same = sorted(names[0]) == sorted(names[1])
        problem = (
            ("its order changes" if names[0] != names[1] else "its definitions change")
            if same
            else ("different tools are listed")
        )
    yield Verdict("list-stable", problem, "tools/list")


def _both_eras(recording: Recording) -> Iterator[Verdict]:
    lists = {
        episode.name: [item for page in pages for item in items_of(page)]
        for episode in recording.episodes
        if (pages := episode.of("list:tools/list"))
    }
    if "legacy" not in lists or "modern" not in lists:
        return
    older, newer = set(_names(lists["legacy"])), set(_names(lists["modern"]))
    problem = "; ".join(
        f"{era} alone: {shown(', '.join(sorted(names)))}"
        for era, names in (("initialize", older - newer), ("server/discover", newer - older))
        if names
    )
    yield Verdict("eras-agree", problem)


def _names(items: list[JsonValue]) -> list[str]:
    return [str(item.get("name")) for item in items if isinstance(item, dict)]


def _text(items: list[JsonValue]) -> str:
    try:
        return canonical_json(items)
    except (RecursionError, TypeError):
        return ""
