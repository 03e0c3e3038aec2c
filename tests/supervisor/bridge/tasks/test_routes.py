"""Which server has which of a client's tasks, and what the client calls them."""

import pytest

from quarterdeck.bridge.tasks import routes as module
from quarterdeck.bridge.tasks.routes import MAX_EACH, TaskRoutes


def test_a_task_keeps_its_servers_id() -> None:
    """A client that keeps an id would find nothing under it."""
    routes = TaskRoutes()
    assert routes.note("ada", "s", "1", "work") == "1"
    found = routes.find("ada", "1")
    assert found is not None
    assert (found.server, found.own, found.tool) == ("s", "1", "work")
    assert routes.find("bob", "1") is None


def test_two_servers_that_give_one_id_are_told_apart() -> None:
    """A client would cancel one server's task and mean the other's."""
    routes = TaskRoutes()
    assert [routes.note("ada", server, "1", "work") for server in "abab"] == ["1", "b:1", "1", "b:1"]
    found = [routes.find("ada", public) for public in ("1", "b:1")]
    assert [(each.server, each.own) for each in found if each is not None] == [("a", "1"), ("b", "1")]
    assert (routes.public("ada", "a", "1"), routes.public("ada", "b", "1")) == ("1", "b:1")
    assert routes.note("bob", "b", "1", "work") == "1", "of another client it is the first"


def test_an_id_that_looks_like_another_servers_task_is_given_none() -> None:
    """A server would take over what another one's task will be called."""
    routes = TaskRoutes()
    routes.note("ada", "a", "1", "work")
    assert routes.note("ada", "a", "b:1", "work") == "b:1"
    assert routes.note("ada", "b", "1", "work") == ""
    found = routes.find("ada", "b:1")
    assert found is not None
    assert found.server == "a"


def test_what_is_forgotten_leaves_nothing() -> None:
    """An id that is free again would be taken for another's."""
    routes = TaskRoutes()
    for server in "ab":
        routes.note("ada", server, "1", "work")
    routes.forget("ada", "b:1")
    routes.forget("ada", "b:1")
    assert routes.public("ada", "b", "1") == "1"
    routes.leave("ada")
    assert list(routes.after("ada", 0)) == []
    assert routes.note("ada", "b", "1", "work") == "1"


def test_tasks_are_bounded_by_client_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that begins tasks for ever would take all memory."""
    routes = TaskRoutes()
    for number in range(MAX_EACH + 5):
        routes.note("ada", "s", str(number), "work")
    assert [each.own for each in routes.after("ada", 0)][:2] == ["5", "6"]
    monkeypatch.setattr(module, "MAX_TOGETHER", MAX_EACH)
    routes.note("bob", "s", "b", "work")
    assert routes.find("bob", "b") is not None
    assert routes.find("ada", "5") is None, "who has most loses one"
