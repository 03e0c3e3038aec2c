"""Whose tasks a server has, and how many are known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.fleet.core import task_owners
from quarterdeck.fleet.core.task_owners import MAX_AGE_S, MAX_EACH, TaskOwners


def test_a_task_is_its_own_clients_alone() -> None:
    """A client would see another's task, or cancel it."""
    owners = TaskOwners()
    assert owners.note("1", "ada", 0.0)
    assert owners.use("1", "ada", 1.0)
    assert not owners.use("1", "bob", 1.0)
    assert not owners.use("2", "ada", 1.0)
    assert (owners.owner_of("1"), owners.owner_of("2")) == ("ada", None)


def test_a_server_cannot_give_a_client_anothers_task() -> None:
    """A server would hand one client's work to another, by an id that it has given already."""
    owners = TaskOwners()
    owners.note("1", "ada", 0.0)
    assert not owners.note("1", "bob", 1.0)
    assert owners.note("1", "ada", 1.0), "its own it may"
    assert owners.owner_of("1") == "ada"
    owners.leave("ada")
    assert owners.note("1", "bob", 2.0), "nobody has it any more"


def test_of_too_many_tasks_the_client_that_has_them_loses_the_oldest() -> None:
    """One client's tasks would take all memory, or push out a neighbour's."""
    owners = TaskOwners()
    owners.note("neighbour's", "bob", 0.0)
    for number in range(MAX_EACH + 10):
        owners.note(str(number), "ada", 1.0)
    assert (len(owners), owners.forgotten) == (MAX_EACH + 1, 10)
    assert owners.owner_of("9") is None
    assert owners.owner_of("10") == "ada"
    assert owners.use("neighbour's", "bob", 2.0)


def test_together_there_are_no_more_than_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many clients would take all memory with a few tasks each."""
    monkeypatch.setattr(task_owners, "MAX_TOGETHER", 3)
    owners = TaskOwners()
    owners.note("b", "bob", 0.0)
    for task in "123":
        owners.note(task, "ada", 0.0)
    assert len(owners) == 3
    assert owners.use("b", "bob", 0.0), "who has most loses one"


def test_a_task_that_nobody_asked_for_in_a_day_is_forgotten() -> None:
    """What clients left would be kept for ever."""
    owners = TaskOwners()
    owners.note("old", "ada", 0.0)
    owners.note("used", "ada", 0.0)
    assert owners.use("used", "ada", MAX_AGE_S / 2)
    assert owners.note("new", "bob", MAX_AGE_S + 1)
    assert owners.owner_of("old") is None
    assert owners.owner_of("used") == "ada"
    assert not owners.use("new", "bob", 3 * MAX_AGE_S), "too old, though nobody came meanwhile"
    assert owners.owner_of("new") is None


@given(st.lists(st.tuples(st.sampled_from("nul"), st.sampled_from("12"), st.sampled_from("ab"), st.floats(0, 1e5))))
def test_a_task_has_one_owner_whatever_happens(steps: list[tuple[str, str, str, float]]) -> None:
    """Two clients would have one task, or a task nobody could forget."""
    owners, now = TaskOwners(), 0.0
    for kind, task, client, after_s in steps:
        now += after_s
        match kind:
            case "n":
                assert owners.note(task, client, now) == (owners.owner_of(task) == client)
            case "u":
                assert not owners.use(task, client, now) or owners.owner_of(task) == client
            case _:
                owners.leave(client)
                assert client not in {owners.owner_of(each) for each in "12"}
    assert len(owners) == sum(owners.owner_of(each) is not None for each in "12")
