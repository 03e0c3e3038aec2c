"""Our tables and judgements against those of the installed SDK: a new revision of it shows here what we lack."""

import itertools
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared import inbound
from mcp_types import jsonrpc, version
from mcp_types import methods as sdk
from pydantic import ValidationError

from quarterdeck_protocol.mcp import tasks
from quarterdeck_protocol.mcp.jsonrpc import read_message
from quarterdeck_protocol.mcp.server import methods as ours
from quarterdeck_protocol.mcp.server.http_headers import check_mirrored, check_standard, marked_properties
from quarterdeck_protocol.mcp.server.requests import Refused, judge, read_params

TASKS = {tasks.LIST, *tasks.METHODS[False], *tasks.METHODS[True]}
"""The SDK has types for some of them, and serves none."""

KEY = "io.modelcontextprotocol/"
ENVELOPE = {f"{KEY}protocolVersion": "2026-07-28", f"{KEY}clientCapabilities": {}}


def test_the_revisions_are_the_sdks() -> None:
    """A client of a revision that is missing here would be answered in another."""
    assert ours.HANDSHAKE_VERSIONS == version.HANDSHAKE_PROTOCOL_VERSIONS
    assert (ours.MODERN_VERSION,) == version.MODERN_PROTOCOL_VERSIONS
    assert types.DEFAULT_NEGOTIATED_VERSION == ours.DEFAULT_VERSION


@pytest.mark.parametrize("revision", version.KNOWN_PROTOCOL_VERSIONS)
def test_each_revision_has_the_sdks_methods_and_notifications(revision: str) -> None:
    """One that is missing here would be refused to a client that has a right to it."""
    era = ours.Era.MODERN if revision == ours.MODERN_VERSION else ours.Era.LEGACY
    assert {name for name, (eras, _) in ours.METHODS_OF.items() if era in eras} - TASKS == {
        name for name, of in sdk.CLIENT_REQUESTS if of == revision
    } - TASKS
    assert {name for name, eras in ours.NOTIFICATIONS.items() if era in eras} == {
        name for name, of in sdk.CLIENT_NOTIFICATIONS if of == revision
    }


def test_the_codes_of_errors_are_the_sdks() -> None:
    """Clients act by them."""
    assert jsonrpc.HEADER_MISMATCH == ours.HEADER_MISMATCH
    assert jsonrpc.MISSING_REQUIRED_CLIENT_CAPABILITY == ours.MISSING_CAPABILITY
    assert jsonrpc.UNSUPPORTED_PROTOCOL_VERSION == ours.UNSUPPORTED_VERSION
    assert jsonrpc.URL_ELICITATION_REQUIRED == ours.URL_ELICITATION_REQUIRED
    assert inbound.ERROR_CODE_HTTP_STATUS == ours.HTTP_STATUS
    assert inbound.NAME_BEARING_METHODS == ours.NAMED_BY


@pytest.mark.parametrize("capabilities", [ours.EVERYTHING, *ours.TOOLS_ONLY.values()])
def test_our_capabilities_are_some_that_the_sdk_knows_and_it_knows_no_others(capabilities: bytes) -> None:
    """A new one would be a feature that clients look for."""
    found = types.ServerCapabilities.model_validate_json(capabilities)
    assert json.loads(found.model_dump_json(by_alias=True, exclude_none=True)) == json.loads(capabilities)
    known = {field.alias or name for name, field in types.ServerCapabilities.model_fields.items()}
    everything = json.loads(ours.EVERYTHING)
    assert known - everything.keys() <= {"experimental", "extensions", "tasks"}
    client = {field.alias or name for name, field in types.ClientCapabilities.model_fields.items()}
    assert client <= {"elicitation", "sampling", "roots", "experimental", "extensions", "tasks"}


VALUES: list[Any] = [None, True, 5, 1.5, "text", "debug", [], ["a"], [5], {}, {"a": "b"}, {"a": 1}]
MEMBERS: dict[str, list[Any]] = {
    "initialize": [
        {"protocolVersion": a, "capabilities": b, "clientInfo": c}
        for a, b, c in (
            ("x", {}, {"name": "n", "version": "v"}),
            (5, {}, {"name": "n", "version": "v"}),
            ("x", 5, {"name": "n", "version": "v"}),
            ("x", {"roots": 5}, {"name": "n", "version": "v"}),
            ("x", {"elicitation": {"form": {}}}, {"name": "n", "version": "v", "title": "t"}),
            ("x", {}, {"name": "n"}),
            ("x", {"unknown": 5}, {"name": "n", "version": "v", "unknown": 5}),
        )
    ],
    "completion/complete": [
        {"ref": ref, "argument": {"name": "a", "value": "b"}}
        for ref in (
            {"type": "ref/prompt", "name": "p"},
            {"type": "ref/prompt"},
            {"type": "ref/resource", "uri": "x://y"},
            {"type": "ref/tool", "name": "p"},
            {"name": "p"},
        )
    ]
    + [
        {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "b"}, "context": context}
        for context in ({}, {"arguments": {"a": "b"}}, {"arguments": {"a": 1}}, 5)
    ],
    "subscriptions/listen": [
        {"notifications": each}
        for each in (
            {},
            {"toolsListChanged": True},
            {"resourceSubscriptions": ["x://y"]},
            {"resourceSubscriptions": 5},
            5,
        )
    ],
}
NAMES = ["name", "arguments", "uri", "cursor", "level"]
CASES = [
    (method, revision, params)
    for revision in ("2025-11-25", "2026-07-28")
    for method, of in sorted(sdk.CLIENT_REQUESTS)
    if of == revision and method not in TASKS
    for params in (
        *MEMBERS.get(method, []),
        {},
        *({"name": "n", "uri": "x://y", "level": "info", name: value} for name in NAMES for value in VALUES),
    )
]


def test_params_are_right_where_the_sdk_takes_them() -> None:
    """What we refuse would be a feature lost; what we take that it does not reaches servers in no form."""
    different = []
    for method, revision, params in CASES:
        whole = {**params, "_meta": ENVELOPE} if revision == ours.MODERN_VERSION else params
        message = read_message(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": whole}).encode())
        try:
            sdk.validate_client_request(method, revision, whole)
            is_right = True
        except ValidationError:
            is_right = False
        try:
            judge(message, 1, read_params(message), revision)
            is_taken = True
        except Refused:
            is_taken = False
        if is_taken is not is_right:
            different.append((method, revision, params, is_right))
    assert different == []


def refused(check: Callable[[], object]) -> tuple[int, str] | None:
    """The code and the words of a refusal; None for none."""
    try:
        check()
    except Refused as error:
        return error.code, str(error)
    return None


VERSION, METHOD, NAME = "mcp-protocol-version", "mcp-method", "mcp-name"
BASE = {VERSION: "2026-07-28", METHOD: "tools/call", NAME: "t"}
CHANGED = [
    *({VERSION: value} for value in ("2025-11-25", "", None)),
    *({METHOD: value} for value in ("tools/list", "", None)),
    *({NAME: value} for value in ("x", "=?base64?dA==?=", "=?base64?dB==?=", "=?base64?w7w=?=", "", None)),
]


@pytest.mark.parametrize("method", ["tools/call", "tools/list", "prompts/get"])
@pytest.mark.parametrize("meta", [ENVELOPE, {}, None, {f"{KEY}protocolVersion": "2026-07-28"}])
def test_standard_headers_are_judged_as_the_sdk_does(method: str, meta: Any) -> None:
    """A proxy that routes by them must see what we carry out."""
    for changed in ({}, {METHOD: method}, *CHANGED):
        headers = {name: value for name, value in {**BASE, **changed}.items() if value is not None}
        for name in ("t", "ü", None):
            params = {"_meta": meta, "name": name, "arguments": {}}
            params = {key: value for key, value in params.items() if value is not None}
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            verdict = inbound.classify_inbound_request(body, headers=headers)
            expected = None
            if isinstance(verdict, inbound.InboundLadderRejection):
                expected = verdict.code, verdict.message
            message = read_message(json.dumps(body).encode())
            check = partial(check_standard, message, headers)
            said = refused(partial(judge, message, 1, read_params(message), "2026-07-28", check=check))
            assert said == expected or (expected is None and name is None), (headers, params)


KINDS = ["string", "integer", "boolean"]
GIVEN: list[Any] = [..., None, True, False, 5, 5.0, 1.5, 10**30, "5", "ü", "", [], {}]
SAID = [None, "5", "5.0", "5.5", "true", "1.5", "=?base64?w7w=?=", "=?base64?x?=", "", "1" + "0" * 30]


@pytest.mark.parametrize("kind", KINDS)
def test_mirrored_headers_are_judged_as_the_sdk_does(kind: str) -> None:
    """Likewise those that repeat arguments."""
    marked = {"type": kind, "x-mcp-header": "A"}
    schemas = [{"properties": {"p": marked}}, {"properties": {"o": {"properties": {"p": marked}}}}]
    for (depth, schema), value, header in itertools.product(enumerate(schemas), GIVEN, SAID):
        inner = {} if value is ... else {"p": value}
        arguments = {"o": inner} if depth else inner
        headers = {} if header is None else {"mcp-param-a": header}
        verdict = inbound.validate_mcp_param_headers(schema, arguments, headers)
        said = refused(partial(check_mirrored, schema, json.dumps(arguments).encode(), tuple(headers.items())))
        assert (said is not None) is (verdict is not None), (schema, arguments, headers)


SCHEMAS = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "integer", "boolean", "number", 5]),
            "x-mcp-header": st.sampled_from(["A", "a", "B", "no token", 5]),
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("pqr"), inner),
            "items": inner,
            "allOf": st.lists(inner),
        },
    ),
    max_leaves=6,
)


@given(SCHEMAS)
def test_a_mark_is_wrong_where_the_sdk_says_so(schema: Any) -> None:
    """Clients drop such a tool, and send no headers for it."""
    assert (marked_properties(schema) is None) is (inbound.find_invalid_x_mcp_header(schema) is not None)
