"""One tool's schema as a document: where its references point, and which of its parts stand without them.

Below `portable`.  Pure: a document is surveyed once and never changed, and nothing is ever fetched.
"""

from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

from quarterdeck_protocol.schema import JsonValue, Schema

REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
"""Keywords that apply a schema that stands elsewhere."""

EXCLUSIVE_BOUNDS: Final = frozenset({"exclusiveMinimum", "exclusiveMaximum"})
"""Numbers today; in draft 4, booleans that qualified `minimum` and `maximum`."""


class Document:
    """An input schema as the server wrote it; a JSON value that nobody changes while this lives."""

    def __init__(self, root: JsonValue) -> None:
        self._root = root
        self._targets: dict[str, JsonValue] = {}
        self._sizes: dict[int, int] = {}
        self._dependent: set[int] = set()
        self._embeds_documents = False
        self._survey()

    @property
    def lets_references_rule(self) -> bool:
        """Whether a `$ref` silences the keywords beside it, as it does up to draft 7."""
        dialect = self._root.get("$schema") if isinstance(self._root, dict) else None
        return isinstance(dialect, str) and "/draft-0" in dialect

    def size(self, value: JsonValue) -> int:
        """How many JSON values a part of the document holds, itself included; it may be a list made of such parts."""
        if not isinstance(value, dict | list):
            return 1
        return self._sizes.get(id(value)) or 1 + sum(map(self.size, _children(value)))

    def stands_alone(self, value: JsonValue) -> bool:
        """Whether a part of the document means the same when it is copied as it is, under the current draft.

        False for references, for forms of older drafts, and for what is no part of the document but made of some.
        """
        return not isinstance(value, dict | list) or (id(value) in self._sizes and id(value) not in self._dependent)

    def target(self, reference: str) -> JsonValue:
        """The schema that a reference names: an object or a boolean, or None where we cannot tell.

        Followed are JSON pointers into this document.  One that embeds others (an inner `$id`) may mean any of them.
        """
        if self._embeds_documents or not (reference == "#" or reference.startswith("#/")):
            return None
        if reference not in self._targets:
            found = _step_through(self._root, reference.split("/")[1:])
            self._targets[reference] = found if isinstance(found, dict | bool) else None
        return self._targets[reference]

    def _survey(self) -> None:
        """Measure every container, and note those that hold a reference or a form of an older draft."""
        containers = [self._root] if isinstance(self._root, dict | list) else []
        for container in containers:  # grows while we walk it: every container stands before those it holds
            containers.extend(child for child in _children(container) if isinstance(child, dict | list))
        for container in reversed(containers):
            children = list(_children(container))
            self._sizes[id(container)] = self.size(container)
            if isinstance(container, dict):
                self._embeds_documents |= isinstance(container.get("$id"), str) and container is not self._root
            if _is_dependent(container) or not all(map(self.stands_alone, children)):
                self._dependent.add(id(container))


def _children(container: Schema | list[JsonValue]) -> Iterable[JsonValue]:
    return container.values() if isinstance(container, dict) else container


def _is_dependent(container: Schema | list[JsonValue]) -> bool:
    if isinstance(container, list):
        return False
    return (
        not REFERENCES.isdisjoint(key for key, value in container.items() if not isinstance(value, dict))
        or isinstance(container.get("items"), list)  # a tuple, up to draft 2019-09
        or any(isinstance(container.get(bound), bool) for bound in EXCLUSIVE_BOUNDS)  # draft 4
    )


def _step_through(value: JsonValue, pointer: Iterable[str]) -> JsonValue:
    """What an escaped JSON pointer leads to; None where it leads nowhere."""
    for token in pointer:
        key = unquote(token).replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and len(key) < 9 and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value
