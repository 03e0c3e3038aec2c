"""Which server has which of a client's tasks, and what the client calls them."""

from quarterdeck.route.tasks.task_routes import MAX_EACH, MAX_TOGETHER, TaskRoute, TaskRoutes


def noted(routes: TaskRoutes, server: str, own: str = "1", client: str = "ada") -> str:
    route = routes.note(client, server, own, "work")
    return route.public if route is not None else ""


def at(route: TaskRoute | None) -> tuple[str, str] | None:
    return None if route is None else (route.server, route.own)


def test_a_task_keeps_its_servers_id() -> None:
    """A client that keeps an id would find nothing under it."""
    routes = TaskRoutes()
    assert noted(routes, "s") == "1"
    found = routes.find("ada", "1")
    assert (found.server, found.own, found.tool) == ("s", "1", "work")
    assert routes.find("bob", "1") is None


def test_two_servers_that_give_one_id_are_told_apart() -> None:
    """A client would cancel one server's task and mean the other's."""
    routes = TaskRoutes()
    assert [noted(routes, server) for server in "abab"] == ["1", "b:1", "1", "b:1"]
    assert [at(routes.find("ada", public)) for public in ("1", "b:1")] == [("a", "1"), ("b", "1")]
    assert [at(routes.of_server("ada", server, "1")) for server in "abc"] == [("a", "1"), ("b", "1"), None]
    assert noted(routes, "b", client="bob") == "1", "of another client it is the first"


def test_an_id_that_looks_like_another_servers_task_is_given_none() -> None:
    """A server would take over what another one's task will be called."""
    routes = TaskRoutes()
    noted(routes, "a")
    assert noted(routes, "a", "b:1") == "b:1"
    assert noted(routes, "b") == ""
    assert at(routes.find("ada", "b:1")) == ("a", "b:1")


def test_what_is_forgotten_leaves_nothing() -> None:
    """An id that is free again would be taken for another's."""
    routes = TaskRoutes()
    for server in "ab":
        noted(routes, server)
    routes.forget("ada", "b:1")
    routes.forget("ada", "b:1")
    assert routes.of_server("ada", "b", "1") is None
    routes.leave("ada")
    assert list(routes.after("ada", 0)) == []
    assert noted(routes, "b") == "1"


def test_tasks_are_bounded_by_client_and_together() -> None:
    """A client that begins tasks for ever would take all memory."""
    routes = TaskRoutes()
    for number in range(MAX_EACH + 5):
        noted(routes, "s", str(number))
    assert [each.own for each in routes.after("ada", 0)][:2] == ["5", "6"]
    for other in range(MAX_TOGETHER // MAX_EACH - 1):
        for number in range(MAX_EACH - 1):
            noted(routes, "s", str(number), f"other-{other}")
    for number in range(MAX_TOGETHER // MAX_EACH - 1):
        noted(routes, "s", str(number), "bob")
    assert routes.find("ada", "5") is not None
    noted(routes, "s", "one more", "bob")
    assert routes.find("bob", "one more") is not None
    assert routes.find("ada", "5") is None, "who has most loses one"
