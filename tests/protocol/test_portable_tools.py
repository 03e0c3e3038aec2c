"""The portable schemas of tools that people use, as their servers list them, and of forms that people write by hand."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.json_judge import SAMPLES, admits, examples, judge
from support.json_schemas import containers

from quarterdeck_protocol.portable import portable_schema
from quarterdeck_protocol.portable_types import CONSTRAINTS
from quarterdeck_protocol.schema import TYPES

DATA = Path(__file__).parent / "data"
TOOLS = [
    pytest.param(tool["inputSchema"], id=f"{server}-{tool['name']}")
    for file in ("real_tools.json", "written_tools.json")
    for server, tools in json.loads((DATA / file).read_text("utf-8")).items()
    for tool in tools
]


@pytest.mark.parametrize("tool", TOOLS)
def test_of_real_tools_nothing_that_the_server_admits_is_refused(tool: Any) -> None:
    """Breaks: tools that people use would stop working behind us."""
    loose = {key: value for key, value in tool.items() if key in {"type", "properties"} or key not in CONSTRAINTS}
    server, model = judge(loose), judge(portable_schema(loose))
    for name, schema in tool.get("properties", {}).items():
        calls = [{name: value} for value in (*SAMPLES, *examples(schema, tool))]
        verdicts = [admits(server, call) for call in calls]
        assert {True, None} & {*verdicts} or "pattern" in str(schema), f"nothing proven about {name}"
        assert all(admits(model, call) for call, verdict in zip(calls, verdicts, strict=True) if verdict), name
    server, model = judge(tool), judge(portable_schema(tool))
    assert all(admits(model, call) for call in examples(tool, tool) if admits(server, call))


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
        pending += [node[key] for key in ("items", "additionalProperties") if isinstance(node.get(key), dict)]
        pending += node.get("anyOf", []) if "type" not in node else []
