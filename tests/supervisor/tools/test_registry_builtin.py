"""The registry of the twelve."""

import pytest

from quarterdeck.tools.registry import MUTATING_NAMES, READ_ONLY_NAMES, UnknownToolError, builtin_registry, builtin_tool

OBSERVING = "read ls grep find websearch webfetch"
ORDER = f"{OBSERVING} write edit bash todo_set todo_read process".split()


def test_the_registry_holds_the_twelve_in_order() -> None:
    """Whoever uses the kernel without a deck would miss a tool."""
    registry = builtin_registry()
    assert registry.names() == tuple(ORDER)
    assert [registry.get(name).name for name in ORDER] == [*ORDER]


def test_its_collections_split_it_as_the_deck_does() -> None:
    """A box that may only look would be able to write."""
    registry = builtin_registry()
    members = {name: [tool.name for tool in registry.members_of(name)] for name in registry.collection_names()}
    assert members == {"read-only": list(READ_ONLY_NAMES), "coding": [*ORDER], "all": [*ORDER]}
    assert {*READ_ONLY_NAMES, *MUTATING_NAMES} == set(ORDER)
    assert (len(READ_ONLY_NAMES), len(MUTATING_NAMES)) == (7, 5)


def test_registries_share_their_tools_and_nothing_else() -> None:
    """One session's registration would change another's tools."""
    first, second = builtin_registry(), builtin_registry()
    first.register(second.get("todo_read"))
    assert first is not second
    assert first.get("todo_read") is second.get("todo_read")


def test_an_unknown_name_is_said() -> None:
    """A slip would be a KeyError from inside."""
    with pytest.raises(UnknownToolError, match="no tool called 'raed'"):
        builtin_tool("raed")
