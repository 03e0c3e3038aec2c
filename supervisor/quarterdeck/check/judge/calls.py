"""Verdicts on requests for what a server has: calls, prompts, resources, progress, cancellation.  Pure."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from quarterdeck.check.episode import Ending, Episode, Exchange, Members, Recording
from quarterdeck.check.schemas import problem_of, shown, simple_schema, wrapped
from quarterdeck.check.verdicts import Verdict
from quarterdeck_protocol.schema.canonical import JsonValue, Schema

from .shapes import shape_problem, unanswered

_STACK: Final = re.compile(
    r"Traceback \(most recent call last\)|\n\s+at [^\n]{1,200}:\d+:\d+\)?|\n  File \"[^\"\n]+\", line \d+"
)
"""Matches a stack trace of Python or Node."""

CALLS_BEFORE: Final = 3
"""That are told of beside the call that was not answered."""

MAX_ERROR_CHARS: Final = 8192


def judge(recording: Recording) -> Iterator[Verdict]:
    """Yield the verdicts."""
    schemas = _output_schemas(recording)
    for episode in recording.episodes:
        before: list[Exchange] = []
        for exchange in episode.exchanges:
            if exchange.method == "tools/call" and exchange.purpose != "unknown-tool":
                yield from _call(exchange, episode, schemas, before)
                before = [*before, exchange][-CALLS_BEFORE:]
            elif exchange.purpose in _OFFERS:
                yield from _offer(exchange, episode)
            yield from _progress(exchange)
            yield from _plain(exchange)
        for foreign in episode.foreign_progress:
            yield Verdict("progress", f"progress of a token that nobody gave: {foreign}")
        yield from _unknown(episode)


_OFFERS: Final = {"prompt": "prompt-answered", "resource": "resource-read"}


def _call(
    exchange: Exchange, episode: Episode, schemas: dict[str, Schema], before: Sequence[Exchange]
) -> Iterator[Verdict]:
    place = shown(exchange.subject)
    if exchange.purpose == "cancelled":
        yield Verdict("cancel", "it was answered all the same" if exchange.late else "", place)
        return
    survived = exchange.ending is not Ending.LOST
    yield Verdict("call-survived", "" if survived else _last_calls(exchange, before), place)
    if exchange.ending is Ending.SILENT:
        told = "" if exchange.progress else f"called with {_arguments(exchange)}: {unanswered(exchange)}"
        yield Verdict("call-answered", told, place)
        yield Verdict("cancel", "it was answered all the same" if exchange.late else "", place)
        return
    if not survived:
        return
    yield Verdict("call-answered")
    if exchange.result is not None:
        yield Verdict("call-result", shape_problem(exchange, episode), place)
        if exchange.subject in schemas:
            yield Verdict("call-structured", _structured_problem(exchange, schemas[exchange.subject]), place)
    if exchange.purpose.startswith("refused"):
        what = exchange.purpose.removeprefix("refused: ")
        told = f"it answered without an error to arguments {what}" if _is_fine(exchange) else ""
        yield Verdict("call-judged", shown(told), place)


def _is_fine(exchange: Exchange) -> bool:
    members = exchange.result_members
    return exchange.error is None and members.get("isError") is not True and "inputRequests" not in members


def _structured_problem(exchange: Exchange, schema: Schema) -> str:
    members = exchange.result_members
    if not _is_fine(exchange) or members.get("resultType", "complete") != "complete" or "task" in members:
        return ""
    if "structuredContent" not in members:
        return "it has an outputSchema, and its result no structuredContent"
    return problem_of(schema, {"value": members["structuredContent"]})


def _output_schemas(recording: Recording) -> dict[str, Schema]:
    found: dict[str, Schema] = {}
    for tool in recording.tools:
        if isinstance(tool, dict) and isinstance(schema := tool.get("outputSchema"), dict):
            found[str(tool.get("name"))] = simple_schema(wrapped(schema))
    return found


def _offer(exchange: Exchange, episode: Episode) -> Iterator[Verdict]:
    """Judge a prompt or resource; an error is an answer, as the arguments are made up."""
    problem = unanswered(exchange) or (shape_problem(exchange, episode) if exchange.error is None else "")
    yield Verdict(_OFFERS[exchange.purpose], problem, shown(exchange.subject))


def _unknown(episode: Episode) -> Iterator[Verdict]:
    for exchange in episode.of("unknown-tool", "unknown-prompt", "unknown-resource"):
        # Any error will do; a tool's may be a result that says so.
        is_tool_error = exchange.purpose == "unknown-tool" and exchange.result_members.get("isError") is True
        is_refused = exchange.error is not None or is_tool_error
        problem = "" if is_refused else unanswered(exchange) or "it was answered with a result"
        yield Verdict(exchange.purpose, problem, episode.name)


def _progress(exchange: Exchange) -> Iterator[Verdict]:
    if not exchange.progress:
        return
    values = [told.get("progress") for told in exchange.progress]
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    problem = ""
    if len(numbers) < len(values):
        problem = "progress is no number"
    elif any(after <= before for before, after in pairwise(numbers)):
        problem = f"progress does not rise: {shown(', '.join(map(str, numbers[:20])))}"
    yield Verdict("progress", problem, shown(exchange.subject))


def _plain(exchange: Exchange) -> Iterator[Verdict]:
    text = ""
    if exchange.error is not None:
        text = str(exchange.error.get("message"))
    elif exchange.result_members.get("isError") is True:
        text = "\n".join(_texts(exchange.result_members.get("content")))
    if text:
        found = _STACK.search(text[:MAX_ERROR_CHARS])
        place = shown(exchange.subject or exchange.method)
        yield Verdict(
            "error-plain", f"an error shows where it was raised: {shown(found[0].strip())}" if found else "", place
        )


def _texts(content: JsonValue) -> Iterator[str]:
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and isinstance(text := block.get("text"), str):
            yield text


def _last_calls(exchange: Exchange, before: Sequence[Exchange]) -> str:
    """Return the call that had no answer, and those before, one of which may have ended it."""
    told = "; ".join(f"{shown(each.subject)} with {_arguments(each)}" for each in before)
    return f"called with {_arguments(exchange)}, it ended" + (f"; before that came {told}" if told else "")


def _arguments(exchange: Exchange) -> str:
    arguments: JsonValue | Members = exchange.params.get("arguments")
    return shown(msgspec.json.encode(arguments).decode())
