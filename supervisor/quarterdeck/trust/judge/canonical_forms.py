"""Compare definitions without order, once a person has approved that.  Pure.

Some servers write sets, or the path of their directory, into their schemas, so their definitions differ at each start.
The canonical form ignores two things, and every added or removed value or word still counts:

- the order of scalars in `enum`, `required`, `type`, `examples`, `dependentRequired` and `default`, and of the words
  between commas in a `default`; only within schemas, and not of arrays of objects or arrays, whose order has a meaning;
- paths within the server's private home and temporary folder, up to that folder.

Such arrays are sorted even if they never varied: two members have the same order at half of all starts.
"""

import re
from typing import Final

import msgspec

from quarterdeck.ledger.events.events import hash_of

SETS: Final = frozenset({"enum", "required", "type", "examples", "default"})
"""Schema members with scalars that are a set, or that a person may approve as one."""

_SCHEMAS: Final = frozenset({"inputSchema", "outputSchema"})

_LISTED: Final = re.compile(r"[\w.*:-]{1,128}(?:\s?,\s?[\w.*:-]{1,128})+")


def canonical_hash(body: bytes, home: str) -> str:
    """Return the hash of a document's canonical form, or of the document itself if it cannot be read.

    `home` is the private home of its server, next to its temporary folder; empty if unknown.
    """
    try:
        value = _with_own_paths(msgspec.json.decode(body), home)
        return hash_of(msgspec.json.encode(_unordered(value, in_schema=False)))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return hash_of(body)


def _unordered(value: object, *, in_schema: bool) -> object:
    if isinstance(value, list):
        return [_unordered(member, in_schema=in_schema) for member in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _sorted(name, member)
        if in_schema and _is_set(name, member)
        else _unordered(member, in_schema=in_schema or name in _SCHEMAS)
        for name, member in value.items()
    }


def _is_set(name: str, member: object) -> bool:
    if name == "dependentRequired":
        return isinstance(member, dict) and all(map(_is_of_scalars, member.values()))
    if name == "default" and isinstance(member, str):
        return _LISTED.fullmatch(member) is not None
    return name in SETS and _is_of_scalars(member)


def _is_of_scalars(value: object) -> bool:
    return isinstance(value, list) and not any(isinstance(member, dict | list) for member in value)


def _sorted(name: str, member: object) -> object:
    if isinstance(member, dict):
        return {key: _sorted(name, each) for key, each in member.items()}
    if isinstance(member, str):
        return ",".join(sorted(re.split(r"\s?,\s?", member)))
    assert isinstance(member, list)
    return sorted(member, key=msgspec.json.encode)


def _with_own_paths(value: object, home: str) -> object:
    """Give each of the server's own paths one common name, wherever it occurs."""
    if not home:
        return value
    base = home.rpartition("/")[0]
    places = re.compile(rf"{re.escape(base)}/(home|tmp)(?![\w-])")

    def named(each: object) -> object:
        if isinstance(each, str):
            return places.sub(lambda found: f"${{{found[1].upper()}}}", each) if base in each else each
        if isinstance(each, list):
            return [named(member) for member in each]
        if isinstance(each, dict):
            return {name: named(member) for name, member in each.items()}
        return each

    return named(value)
