"""A schema, its references and its `allOf` as one node."""

from typing import Any

import pytest

from quarterdeck_protocol.schema.flatten import MAX_NESTED_REFERENCES, Budget, Document, Flattener, Trail

DOCUMENT: dict[str, Any] = {
    "$defs": {
        "a": {"$ref": "#/$defs/b", "title": "a"},
        "b": {"type": "string", "title": "b"},
        "loop": {"allOf": [{"$ref": "#/$defs/loop"}, {"minLength": 1}]},
    }
}


def flatten(schema: Any, trail: Trail = (), values: int = 100) -> tuple[Any, Trail]:
    """Flatten a schema that refers into `DOCUMENT`, which is unrolled once."""
    return Flattener(Document(DOCUMENT), 1, Budget(values)).flatten(schema, trail)


@pytest.mark.parametrize(
    ("schema", "node", "trail"),
    [
        (True, {}, ()),
        ({"type": "null"}, {"type": "null"}, ()),
        ({"$ref": "#/$defs/a"}, {"title": "a", "type": "string"}, ("#/$defs/a", "#/$defs/b")),
        ({"$ref": "#/$defs/loop"}, {"minLength": 1}, ("#/$defs/loop",)),
        ({"allOf": [{"title": "1", "minLength": 1}, False, 5, {"title": "2"}]}, {"title": "1", "minLength": 1}, ()),
        ({"allOf": 5, "title": "t"}, {"title": "t"}, ()),
        ({"$ref": 5, "title": "t"}, {"title": "t"}, ()),
        ({"allOf": [{"not": {}}, {"not": {}}]}, {"not": {}, "allOf": [{"not": {}}]}, ()),
        ({"allOf": [{"title": "t"}], "unevaluatedProperties": False}, {"title": "t"}, ()),
    ],
)
def test_parts_become_one_node_and_leave_a_trail(schema: Any, node: Any, trail: Trail) -> None:
    """Breaks: references would stay behind, or cycles would not be noticed."""
    assert flatten(schema) == (node, trail)


def test_a_reference_that_came_back_too_often_admits_anything() -> None:
    """Breaks: a cycle would have no end."""
    reference = "#/$defs/b"
    assert flatten({"$ref": reference}, (reference,))[0] == {"type": "string", "title": "b"}
    assert flatten({"$ref": reference}, (reference, reference))[0] == {}


def test_references_nest_so_deep_and_no_deeper() -> None:
    """Breaks: a chain of ten thousand definitions would be followed at every node."""
    trail = tuple(str(number) for number in range(MAX_NESTED_REFERENCES))
    assert flatten({"$ref": "#/$defs/b"}, trail)[0] == {}
    assert flatten({"$ref": "#/$defs/b"}, trail[1:])[0] == {"type": "string", "title": "b"}


def test_what_the_budget_does_not_reach_is_left_out() -> None:
    """Breaks: a hostile server would decide how much we compute."""
    assert flatten({"title": "t", "$ref": "#/$defs/a"}, values=5)[0] == {"allOf": [{"title": "t"}]}


def test_a_budget_that_said_no_never_says_yes_again() -> None:
    """Breaks: what is left out would depend on the order of small and large parts."""
    budget = Budget(5)
    assert budget.affords(5)
    assert not budget.is_exceeded
    assert not budget.affords(1)
    assert budget.is_exceeded
    assert not budget.affords(0)
