"""Verdicts on definitions of tools: names, descriptions, schemas, annotations, what models would read.  Pure."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from quarterdeck.check.episode import Members, Recording
from quarterdeck.check.schemas import (
    MAX_SCHEMA_BYTES,
    problem_of,
    references,
    schema_problem,
    shared_parts,
    shown,
    simple_schema,
)
from quarterdeck.check.verdicts import Verdict
from quarterdeck.common.words import counted
from quarterdeck.trust.scan import scan_definition
from quarterdeck_protocol.schema.canonical import JsonValue
from quarterdeck_protocol.schema.portable import portable_schema
from quarterdeck_protocol.schema.providers.outside import outside
from quarterdeck_protocol.schema.providers.subsets import TOOL_NAMES, Provider

MAX_TOOLS: Final = 200
"""That are judged, and all their text together at most `MAX_BYTES`: some seconds of work."""

MAX_BYTES: Final = 2 * 1024 * 1024

LARGE_BYTES: Final = 64 * 1024
"""Size of a list of tools that costs some 16,000 tokens of each request."""

MAX_DEFAULTS: Final = 200
"""Defaults of one tool that are validated."""

MAX_REFUSALS: Final = 3

_MCP_NAME: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")


def judge(recording: Recording) -> Iterator[Verdict]:
    """Yield the verdicts."""
    tools = [tool for tool in recording.tools if isinstance(tool, dict)]
    if not tools:
        return
    size = len(msgspec.json.encode(tools))
    told = f"{counted(len(tools), 'tool')} take {size / 1024:.0f} KiB" if size > LARGE_BYTES else ""
    yield Verdict("definitions-size", told)
    counts = Counter(str(tool.get("name")) for tool in tools)
    for name, count in counts.items():
        yield Verdict("tool-name-once", f"{count} tools have this name" if count > 1 else "", shown(name))
    silent = [str(tool.get("name")) for tool in tools if "readOnlyHint" not in _annotations(tool)]
    told = shown(f"{len(silent)} of {len(tools)} do not: {', '.join(silent)}") if silent else ""
    yield Verdict("annotations-given", told)
    spent = 0
    for tool in tools[:MAX_TOOLS]:
        spent += len(msgspec.json.encode(tool))
        if spent > MAX_BYTES:
            return
        yield from _tool(tool)


def _tool(tool: Members) -> Iterator[Verdict]:
    said = tool.get("name")
    name = said if isinstance(said, str) else ""
    place = shown(name)
    is_fit = 0 < len(name) <= 128 and _MCP_NAME.issuperset(name)
    yield Verdict("tool-name", "" if is_fit else f"{place!r} has {len(name)} characters, or others", place)
    providers = [provider for provider, pattern in TOOL_NAMES.items() if not pattern.fullmatch(name)]
    yield Verdict("tool-name-providers", f"refused by {', '.join(providers)}" if providers else "", place)
    described = tool.get("description")
    is_described = isinstance(described, str) and bool(described.strip())
    yield Verdict("tool-described", "" if is_described else "it has no description", place)
    yield from _schemas(tool, place)
    yield from _hints(tool, place)
    yield Verdict("text-suspicious")
    for finding in scan_definition("tool", name, tool)[:3]:
        yield Verdict("text-suspicious", shown(f"{finding.rule}: {finding.sentence}: {finding.excerpt}"), place)


def _schemas(tool: Members, place: str) -> Iterator[Verdict]:
    schema = tool.get("inputSchema")
    of_object = isinstance(schema, dict) and schema.get("type") == "object"
    yield Verdict("schema-object", "" if of_object else 'its inputSchema does not say "type": "object"', place)
    for key in ("inputSchema", "outputSchema"):
        if key in tool:
            yield Verdict("schema-valid", _in(key, schema_problem(tool[key])), place)
            lost = [ref for ref, leads in references(tool[key]) if not leads]
            told = f"{key}: $ref {', '.join(map(shown, lost[:3]))} leads nowhere within it" if lost else ""
            yield Verdict("schema-references", told, place)
    if not isinstance(schema, dict):
        return
    yield Verdict("schema-required", _required_problem(schema), place)
    yield Verdict("schema-default", _default_problem(schema), place)
    for provider in TOOL_NAMES:
        yield Verdict(f"schema-{provider}")
        yield from (Verdict(f"schema-{provider}", told, place) for told in _refusals(schema, provider))
    lost_properties = _property_names(schema) - _property_names(portable_schema(schema))
    told = f"properties are lost in it: {shown(', '.join(sorted(lost_properties)))}" if lost_properties else ""
    yield Verdict("schema-portable", told, place)


def _refusals(schema: Members, provider: Provider) -> list[str]:
    """Return the first places that a provider refuses; none in a schema that is too large to judge."""
    try:
        if len(msgspec.json.encode(schema)) > MAX_SCHEMA_BYTES:
            return []
        found = outside(schema, provider)
    except RecursionError:
        return []
    refused = [each for each in found if not each.is_mended_by_clients]
    told = [shown(f"{'/'.join(each.steps) or 'its root'}: {each.rule.words}") for each in refused]
    return list(dict.fromkeys(told))[:MAX_REFUSALS]


def _in(key: str, problem: str) -> str:
    return f"{key}: {problem}" if problem else ""


def _required_problem(schema: Members) -> str:
    required, properties = schema.get("required"), _property_names(schema)
    if not isinstance(required, list) or any(key in schema for key in ("allOf", "anyOf", "oneOf", "$ref")):
        return ""
    strange = [name for name in required if isinstance(name, str) and name not in properties]
    return f"required, and no property: {shown(', '.join(strange))}" if strange else ""


def _default_problem(schema: Members) -> str:
    """Return the first default that its own schema refuses; null means no default in many generators."""
    properties = schema.get("properties")
    for name, node in list(properties.items())[:MAX_DEFAULTS] if isinstance(properties, dict) else ():
        if isinstance(node, dict) and node.get("default") is not None:
            around: Members = {"type": "object", "properties": {"value": node}, **shared_parts(schema)}
            if problem := problem_of(simple_schema(around), {"value": node["default"]}):
                return shown(f"{name}: {problem}")
    return ""


def _hints(tool: Members, place: str) -> Iterator[Verdict]:
    hints = _annotations(tool)
    both = hints.get("readOnlyHint") is True and hints.get("destructiveHint") is True
    yield Verdict(
        "annotations-agree", "it only reads (readOnlyHint), and destroys (destructiveHint)" if both else "", place
    )


def _annotations(tool: Members) -> Members:
    found = tool.get("annotations")
    return found if isinstance(found, dict) else {}


def _property_names(schema: JsonValue) -> set[str]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return set(properties) if isinstance(properties, dict) else set()
