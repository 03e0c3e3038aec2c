"""The portable schemas of tools that people use, as their servers list them, and of forms that people write by hand."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from support.json_judge import SAMPLES, admits, examples, judge
from support.json_schemas import containers
from support.real_tools import read_servers
from support.schema_values import written

from quarterdeck_protocol.portable import portable_schema
from quarterdeck_protocol.portable_types import CONSTRAINTS
from quarterdeck_protocol.schema import TYPES

WRITTEN = json.loads((Path(__file__).parent / "data" / "written_tools.json").read_text("utf-8"))
TOOLS = [
    pytest.param(tool["inputSchema"], id=f"{server}-{tool['name']}")
    for server, tools in (*((server.name, server.tools) for server in read_servers()), *WRITTEN.items())
    for tool in tools
]

KINDS: Final = {"items": "array", "additionalProperties": "object"}
"""The type that a keyword speaks about; beside another type it says nothing, whatever stands in it."""

CALLS: Final = 40
"""Calls written for a tool from its own schema, and again from the portable one."""


@pytest.mark.parametrize("tool", TOOLS)
def test_of_real_tools_nothing_that_the_server_admits_is_refused(tool: Any) -> None:
    """Breaks: tools that people use would stop working behind us."""
    loose = {key: value for key, value in tool.items() if key in {"type", "properties"} or key not in CONSTRAINTS}
    server, model = judge(loose), judge(portable_schema(loose))
    random = Random(0)
    for name, schema in tool.get("properties", {}).items():
        drawn = [written(schema, tool, random) for _ in range(12)]
        calls = [{name: value} for value in (*SAMPLES, *examples(schema, tool), *drawn)]
        verdicts = [admits(server, call) for call in calls]
        is_barren = isinstance(schema, dict) and schema.get("enum") == []
        assert {True, None} & {*verdicts} or is_barren or "pattern" in str(schema), f"nothing proven about {name}"
        assert all(admits(model, call) for call, verdict in zip(calls, verdicts, strict=True) if verdict), name
    server, model = judge(tool), judge(portable_schema(tool))
    assert all(admits(model, call) for call in examples(tool, tool) if admits(server, call))


@pytest.mark.parametrize("tool", TOOLS)
def test_of_real_tools_every_call_that_the_server_takes_passes_the_portable_schema(tool: Any) -> None:
    """Breaks: a model is told that a call is wrong which the server would have carried out."""
    random = Random(0)
    server, model = judge(tool), judge(portable_schema(tool))
    calls = [call for call in (written(tool, tool, random) for _ in range(CALLS)) if isinstance(call, dict)]
    taken = [call for call in calls if admits(server, call)]
    assert [call for call in taken if not admits(model, call)] == []


def test_of_the_calls_written_for_real_tools_servers_take_most() -> None:
    """Breaks: nothing, and just that would stay hidden: the generated calls would prove nothing."""
    taken = asked = 0
    unproven = []
    for server in read_servers():
        for tool in server.tools:
            schema, random, validator = tool["inputSchema"], Random(0), judge(tool["inputSchema"])
            verdicts = [admits(validator, written(schema, schema, random)) for _ in range(CALLS)]
            taken, asked = taken + verdicts.count(True), asked + CALLS
            unproven += [] if True in verdicts else [(server.name, tool["name"])]
    assert taken > 0.8 * asked
    assert unproven == [("netlify", "netlify-coding-rules")]  # its only parameter has no choice: `"enum": []`


@pytest.mark.parametrize("tool", TOOLS)
def test_of_real_tools_every_published_node_is_typed_a_union_or_free(tool: Any) -> None:
    """Breaks: providers refuse a whole session for one node without a type."""
    result = portable_schema(tool)
    for node in nodes(result):
        is_free = CONSTRAINTS.isdisjoint(node)
        assert is_free or ("anyOf" in node if "type" not in node else node["type"] in TYPES), node
    assert not any("$ref" in one for one in containers(result) if isinstance(one, dict))


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
