"""The trace context of a request: in its `_meta` (SEP-414), or in the headers of its HTTP request. Pure.

`_meta` wins where both have one: proxies rewrite headers, and know nothing of what a message carries.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Raw, Struct

PARENT: Final = "traceparent"
KEYS: Final = (PARENT, "tracestate", "baggage")

MAX_HEADER_CHARS: Final = 8192
"""Of one header; W3C Baggage allows no more, and Trace Context asks for 512."""

_PARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_SAMPLED: Final = 1


class Parent(Struct, frozen=True, gc=False):
    """Whose part a request is: the ids of its trace and span, whether that is recorded, and its `tracestate`."""

    trace_id: int
    span_id: int
    is_sampled: bool
    state: str = ""


class _Context(Struct, gc=False):
    traceparent: object = None
    tracestate: object = None


def parent_of(meta: bytes) -> Parent | None:
    """Return the parent that a `_meta` names; None without one, or for one that is malformed."""
    if b"traceparent" not in meta:
        return None
    context = _contexts.decode(meta)
    found = _PARENT.fullmatch(context.traceparent) if isinstance(context.traceparent, str) else None
    if found is None:
        return None
    state = context.tracestate if isinstance(context.tracestate, str) else ""
    return Parent(int(found[1], 16), int(found[2], 16), bool(int(found[3], 16) & _SAMPLED), state)


def with_parent(meta: bytes, trace_id: int, span_id: int) -> bytes:
    """Return a `_meta` that names this span as the parent, recorded."""
    members = _objects.decode(meta) if meta else {}
    return msgspec.json.encode({**members, PARENT: f"00-{trace_id:032x}-{span_id:016x}-01"})


def with_headers(meta: bytes, fields: Mapping[bytes, bytes]) -> bytes:
    """Return a `_meta` with the context that HTTP headers have; unchanged if it has one, or they have none."""
    if b"traceparent" not in fields or b'"traceparent"' in meta:
        return meta
    given = {name: fields.get(name.encode(), b"")[:MAX_HEADER_CHARS].decode("latin-1") for name in KEYS}
    members = _objects.decode(meta) if meta else {}
    return msgspec.json.encode({**{name: value for name, value in given.items() if value}, **members})


_contexts: Final = msgspec.json.Decoder(_Context)
_objects: Final = msgspec.json.Decoder(dict[str, Raw])
