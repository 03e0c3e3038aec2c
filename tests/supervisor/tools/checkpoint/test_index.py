"""What a checkpoint store knows, against a model that remembers whole worlds."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.tools.checkpoint.index import (
    Absent,
    CheckpointIndex,
    Forget,
    Kept,
    Line,
    NewerIndexError,
    Record,
    Start,
    encode,
    node_name,
    parse,
)

AT = "2026-01-02T03:04:05.678Z"

PATHS = st.sampled_from(["/w/a", "/w/b", "/w/ä\udcff"])
CONTENTS = st.none() | st.sampled_from(["", "one", "two", "three"])
CALLS = st.lists(st.lists(st.tuples(PATHS, CONTENTS), min_size=1, max_size=4), max_size=8)
"""For each node the changes that its call makes."""


def kept(node: str, path: str, content: str) -> Kept:
    return Kept(node, path, AT, content, len(content))


def state_of(node: str, path: str, content: str | None) -> Record:
    return Absent(node, path, AT) if content is None else kept(node, path, content)


@dataclass
class Played:
    """Calls that changed a world: what was recorded of them, and the worlds before each."""

    index: CheckpointIndex = field(default_factory=CheckpointIndex)
    lines: list[Line] = field(default_factory=list)
    world: dict[str, str | None] = field(default_factory=dict)
    worlds_before: dict[str, dict[str, str | None]] = field(default_factory=dict)

    def apply(self, line: Line) -> None:
        self.lines.append(line)
        self.index.apply(line)


def play(calls: list[list[tuple[str, str | None]]]) -> Played:
    played = Played()
    for changes in calls:
        node = node_name(played.index.next_number, "write")
        played.worlds_before[node] = dict(played.world)
        for path, content in changes:
            played.apply(state_of(node, path, played.world.get(path)))
            played.world[path] = content
    return played


@given(CALLS)
def test_a_plan_brings_the_world_before_the_node_back(calls: list[list[tuple[str, str | None]]]) -> None:
    """An undo would bring back the state of another moment."""
    played = play(calls)
    for node, before in played.worlds_before.items():
        world = dict(played.world)
        for record in played.index.plan(node):
            world[record.path] = record.digest if isinstance(record, Kept) else None
        assert {path: content for path, content in world.items() if content is not None} == {
            path: content for path, content in before.items() if content is not None
        }


@given(CALLS, st.data())
def test_a_file_cut_anywhere_is_read_up_to_its_last_whole_line(
    calls: list[list[tuple[str, str | None]]], data: st.DataObject
) -> None:
    """A crash during a write would cost all that was kept before it."""
    lines = play(calls).lines
    pieces = [encode(line) for line in lines]
    whole = b"".join(pieces)
    cut = data.draw(st.integers(0, len(whole)))
    index, length, damaged = parse(whole[:cut])
    count = next(n for n in reversed(range(len(pieces) + 1)) if len(b"".join(pieces[:n])) <= cut)
    expected = CheckpointIndex()
    for line in lines[:count]:
        expected.apply(line)
    assert (length, damaged) == (len(b"".join(pieces[:count])), 0)
    assert list(index.lines()) == list(expected.lines())


@given(CALLS, st.integers(0, 12), st.integers(1, 6))
def test_room_is_made_from_the_oldest_and_the_newest_stays(
    calls: list[list[tuple[str, str | None]]], most_bytes: int, most_nodes: int
) -> None:
    """A disk would fill up, or the last change could not be undone."""
    index = play(calls).index
    names = [node.name for node in index.nodes()]
    was_within = index.kept_bytes <= most_bytes and len(names) <= most_nodes
    assert index.make_room(most_bytes, most_nodes) is not was_within
    left = [node.name for node in index.nodes()]
    assert left == names[len(names) - len(left) :]
    assert was_within or len(left) == 1 or (index.kept_bytes <= most_bytes and len(left) <= most_nodes)
    assert bool(left) == bool(names)
    if was_within:
        assert left == names
    used = {record.digest: record.size for record in index.lines() if isinstance(record, Kept)}
    assert index.kept_bytes == sum(used.values())
    assert all(map(index.uses, used))


def test_numbers_go_on_after_nodes_are_gone() -> None:
    """Two changes would have one name, and the wrong one be undone."""
    index = CheckpointIndex()
    index.apply(Start(1, 40))
    index.apply(kept("0041-write", "/w/a", "x"))
    index.apply(Forget("0041-write"))
    assert index.next_number == 42
    assert [*index.lines()] == [Start(1, 42)]
    assert index.dead_lines == 2
    assert not index.uses("x")
    assert index.kept_bytes == 0


def test_a_content_in_two_nodes_is_counted_once_and_needed_until_both_are_gone() -> None:
    """The bound would be reached too early, or an undo find nothing."""
    index = CheckpointIndex()
    index.apply(kept("0001-write", "/w/a", "same"))
    index.apply(kept("0002-write", "/w/b", "same"))
    assert index.kept_bytes == 4
    assert index.digests("0001-write") == ["same"]
    index.drop("0001-write")
    assert index.uses("same")
    index.drop("0002-write")
    assert not index.uses("same")
    assert index.kept_bytes == 0
    index.drop("0002-write")


def test_lines_that_cannot_be_read_are_counted_and_left_out() -> None:
    """One damaged line would cost all others."""
    good = encode(kept("0001-write", "/w/a", "x"))
    data = b"".join((b"{\n", good, b'{"op":"other"}\n', b"\xff\n", b'{"op":"kept","node":5}\n', b"[" * 100_000 + b"\n"))
    index, length, damaged = parse(data)
    assert [node.name for node in index.nodes()] == ["0001-write"]
    assert (length, damaged) == (len(data), 5)


def test_an_index_of_a_later_version_is_refused() -> None:
    """An older program would rewrite what it does not understand."""
    with pytest.raises(NewerIndexError, match="format 2"):
        parse(encode(Start(2, 1)))
