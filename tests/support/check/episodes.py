"""Recorded episodes for verdicts, and what the verdicts found."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from quarterdeck.check.episode import Ending, Episode, Exchange, Recording
from quarterdeck.check.verdicts import Verdict

Judge = Callable[[Recording], Iterator[Verdict]]


def exchange(purpose: str, method: str = "ping", **facts: Any) -> Exchange:
    """A request, answered with `result` or `error`, or not at all."""
    reply = None
    for key in ("result", "error"):
        if key in facts:
            reply = {"jsonrpc": "2.0", "id": 1, key: facts.pop(key)}
    params = facts.pop("params", {})
    ending = facts.pop("ending", Ending.SILENT if reply is None else Ending.ANSWERED)
    return Exchange(purpose, method, params, 1, ending, reply, **facts)


def episode(*exchanges: Exchange, name: str = "legacy", era: str = "2025-11-25", **facts: Any) -> Episode:
    return Episode(name, era, list(exchanges), **facts)


def tools_listed(*tools: Any, **facts: Any) -> Episode:
    return episode(exchange("list:tools/list", "tools/list", result={"tools": list(tools)}), **facts)


def tool(name: str = "t", schema: Any = None, **members: Any) -> dict[str, Any]:
    """A tool with nothing wrong."""
    described = {"name": name, "description": "Does something.", "annotations": {"readOnlyHint": True}}
    return {
        **described,
        "inputSchema": schema or {"type": "object", "properties": {"a": {"type": "string"}}},
        **members,
    }


def found(judge: Judge, *episodes: Episode) -> dict[str, list[str]]:
    """The problems that a judge tells of these episodes, by check; an empty list for a check that held."""
    told: dict[str, list[str]] = {}
    for verdict in judge(Recording(episodes)):
        problems = told.setdefault(verdict.check, [])
        if verdict.problem:
            problems.append(verdict.problem)
    return told


def problems(judge: Judge, *episodes: Episode) -> set[str]:
    return {check for check, told in found(judge, *episodes).items() if told}


def passed(told: dict[str, list[str]]) -> Iterable[str]:
    return [check for check, each in told.items() if not each]
