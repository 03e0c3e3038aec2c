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

EVERY_FOURTH: Final = [*TOOLS][::4]
"""Of the calls that are written for tools, most find in four what they would find in one."""

CALLS: Final = 20
"""Calls written for a tool from its own schema."""


@pytest.mark.nightly
def test_of_real_tools_nothing_that_the_server_admits_is_refused() -> None:
    """Breaks: tools that people use would stop working behind us."""
    refused, unproven, known = {}, {}, set[str]()
    for name in EVERY_FOURTH:
        refused[name], unproven[name] = refused_and_unproven(name, TOOLS[name], known)
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


def test_of_real_tools_every_call_that_the_server_takes_passes_the_portable_schema() -> None:
    """Breaks: a model is told that a call is wrong which the server would have carried out."""
    wrong, taken = {}, 0
    for name in EVERY_FOURTH:
        schema, random = TOOLS[name], Random(0)
        server, model = judge(schema), judge(published(name))
        calls = [call for _ in range(CALLS) if admits(server, call := written(schema, schema, random))]
        wrong[name] = [call for call in calls if isinstance(call, dict) and not admits(model, call)]
        taken += len(calls)
    assert {name: found for name, found in wrong.items() if found} == {}
    assert taken > 0.8 * CALLS * len(EVERY_FOURTH), "calls that no server takes prove nothing"


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
    pending = [schema]
    while pending:
        node = pending.pop()
        yield node
        pending += node.get("properties", {}).values()
        speaking = [key for key in ("items", "additionalProperties") if node.get("type", kind := KINDS[key]) == kind]
        pending += [node[key] for key in speaking if isinstance(node.get(key), dict)]
        pending += node.get("anyOf", []) if "type" not in node else []
