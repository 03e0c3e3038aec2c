"""Compare definitions without order, once a person has approved that.  Pure.

Some servers write sets into their schemas, or the folder that they run in, so that a definition is another one at each
start.  In the canonical form two things are gone, and everything else counts exactly:

- the order of scalars in `enum`, `required`, `type`, `examples`, `dependentRequired` and `default`, and of the words
  between the commas of a text in `default`; only within schemas, and never of arrays that hold objects or arrays, as
  `prefixItems` and `anyOf` do: there order means something;
- paths within the server's private home and temporary folder, up to that folder.

All such arrays are sorted, and not only those that were seen to vary: of two members half of all starts have the same
order, so that a person would be asked again and again.  No value and no word can come or go unseen.
"""

import re
from typing import Final

import msgspec

from quarterdeck.ledger.events.events import hash_of

SETS: Final = frozenset({"enum", "required", "type", "examples", "default"})
"""Members of a schema with scalars that are a set, or may be one for a person who approves that."""

_SCHEMAS: Final = frozenset({"inputSchema", "outputSchema"})

_LISTED: Final = re.compile(r"[\w.*:-]{1,128}(?:\s?,\s?[\w.*:-]{1,128})+")
"""Words with commas between them."""


def canonical_hash(body: bytes, home: str) -> str:
    """Return the hash of a document's canonical form; of one that cannot be read, that of the document.

    Args:
        body: the document.
        home: the private home of its server, beside which its temporary folder lies; empty for none.
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
    """Return the value with the server's own places called alike, wherever they are."""
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
