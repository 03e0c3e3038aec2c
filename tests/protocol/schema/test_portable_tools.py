"""The portable schemas of tools that people use, as their servers list them, and of forms that people write by hand."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from support.schemas.json_schemas import containers
from support.servers.real_tools import read_servers

from quarterdeck_protocol.schema.canonical import TYPES
from quarterdeck_protocol.schema.portable import portable_schema
from quarterdeck_protocol.schema.portable_types import CONSTRAINTS

from .json_judge import SAMPLES, admits, examples, judge
from .schema_values import written

WRITTEN = json.loads((Path(__file__).parents[1] / "data" / "written_tools.json").read_text("utf-8"))
TOOLS: Final[dict[str, Any]] = {
    f"{server}-{tool['name']}": tool["inputSchema"]
    for server, tools in (*((server.name, server.tools) for server in read_servers()), *WRITTEN.items())
    for tool in tools
}
"""All in one test, which names those that it is wrong about: a test for each would cost more than what it does."""

published = cache(lambda name: portable_schema(TOOLS[name]))
"""What is shown of a tool's schema, by its name."""

KINDS: Final = {"items": "array", "additionalProperties": "object"}
"""The type that a keyword speaks about; beside another type it says nothing, whatever stands in it."""

CALLS: Final = 40
"""Calls written for a tool from its own schema, and again from the portable one."""


Call = tuple[Any, bool | None]
"""What is sent, and whether the server takes it; None where nobody can tell."""


@pytest.fixture(scope="module")
def calls() -> dict[str, list[Call]]:
    """For each tool what is written by its own schema."""
    return {name: list(calls_by(schema)) for name, schema in TOOLS.items()}


def calls_by(schema: Any) -> Iterator[Call]:
    """Calls that are written by a schema."""
    random, server = Random(0), judge(schema)
    for _ in range(CALLS):
        call = written(schema, schema, random)
        yield call, admits(server, call)


def test_of_real_tools_nothing_that_the_server_admits_is_refused() -> None:
    """Breaks: tools that people use would stop working behind us."""
    refused, unproven, known = {}, {}, set[str]()
    for name, tool in TOOLS.items():
        refused[name], unproven[name] = refused_and_unproven(name, tool, known)
    assert {name: found for name, found in refused.items() if found} == {}
    assert {name: found for name, found in unproven.items() if found} == {}, "nothing proven about these"


def refused_and_unproven(tool_name: str, tool: Any, known: set[str]) -> tuple[list[Any], list[str]]:
    """What of a tool's parameters is refused although the server admits it, and those of which it admits nothing.

    Parameters that say the same as one of another tool, but for their remarks, are tried once: `known` notes them.
    """
    loose = {key: value for key, value in tool.items() if key in {"type", "properties"} or key not in CONSTRAINTS}
    server, model = judge(loose), judge(portable_schema(loose))
    random = Random(0)
    refused, unproven = [], []
    for name, schema in tool.get("properties", {}).items():
        said = repr({key: schema[key] for key in schema if key in CONSTRAINTS} if isinstance(schema, dict) else schema)
        if "$" not in str(schema):
            if said in known:
                continue
            known.add(said)
        drawn = [written(schema, tool, random) for _ in range(12)]
        tried = [{name: value} for value in (*SAMPLES, *examples(schema, tool), *drawn)]
        verdicts = [admits(server, call) for call in tried]
        is_barren = isinstance(schema, dict) and schema.get("enum") == []
        if not ({True, None} & {*verdicts} or is_barren or "pattern" in str(schema)):
            unproven.append(name)
        refused += [call for call, verdict in zip(tried, verdicts, strict=True) if verdict and not admits(model, call)]
    server, model = judge(tool), judge(published(tool_name))
    refused += [call for call in examples(tool, tool) if admits(server, call) and not admits(model, call)]
    return refused, unproven


def test_of_real_tools_every_call_that_the_server_takes_passes_the_portable_schema(
    calls: dict[str, list[Call]],
) -> None:
    """Breaks: a model is told that a call is wrong which the server would have carried out."""
    wrong = {}
    for name in TOOLS:
        model = judge(published(name))
        wrong[name] = [call for call, taken in calls[name] if taken and isinstance(call, dict)]
        wrong[name] = [call for call in wrong[name] if not admits(model, call)]
    assert {name: found for name, found in wrong.items() if found} == {}


def test_of_the_calls_written_for_real_tools_servers_take_most(calls: dict[str, list[Call]]) -> None:
    """Breaks: nothing, and just that would stay hidden: the generated calls would prove nothing."""
    by_hand = {f"{server}-{tool['name']}" for server, tools in WRITTEN.items() for tool in tools}
    verdicts = {name: [taken for _, taken in calls[name]] for name in calls if name not in by_hand}
    everything = [taken for each in verdicts.values() for taken in each]
    assert everything.count(True) > 0.8 * len(everything)
    unproven = [name for name, each in verdicts.items() if True not in each]
    assert unproven == ["netlify-netlify-coding-rules"]  # its only parameter has no choice: `"enum": []`


def test_of_real_tools_every_published_node_is_typed_a_union_or_free() -> None:
    """Breaks: providers refuse a whole session for one node without a type."""
    wrong = {}
    for name in TOOLS:
        result = published(name)
        wrong[name] = [node for node in nodes(result) if not is_typed_a_union_or_free(node)]
        wrong[name] += [one for one in containers(result) if isinstance(one, dict) and "$ref" in one]
    assert {name: found for name, found in wrong.items() if found} == {}


def is_typed_a_union_or_free(node: Any) -> bool:
    """Whether every provider knows what to make of it."""
    return CONSTRAINTS.isdisjoint(node) or ("anyOf" in node if "type" not in node else node["type"] in TYPES)


def nodes(schema: Any) -> Iterator[Any]:
    """Every schema of a published one, outermost first, as far as keywords that every provider reads go."""
    pending = [schema]
    while pending:
        node = pending.pop()
        yield node
        pending += node.get("properties", {}).values()
        speaking = [key for key in ("items", "additionalProperties") if node.get("type", kind := KINDS[key]) == kind]
        pending += [node[key] for key in speaking if isinstance(node.get(key), dict)]
        pending += node.get("anyOf", []) if "type" not in node else []
