"""Waiting for the first of several things, and for a token that takes the place of a refused one."""

import anyio
import pytest
from support.waiting import PATIENCE_S

from quarterdeck_protocol.link.frames import MAX_BEARER_BYTES
from quarterdeck_worker.server import Access, first_of


async def test_the_first_ends_the_wait_and_the_others_are_called_off() -> None:
    """Whoever waits for a death or a hang-up would wait for both."""
    ended: list[str] = []
    happened = anyio.Event()

    async def never() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("called off")

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first_of, never, happened.wait, never)
            await anyio.wait_all_tasks_blocked()
            assert ended == []
            happened.set()
    assert ended == ["called off"] * 2


async def test_what_has_happened_already_needs_no_wait() -> None:
    """A server that died before we looked would look alive."""
    happened = anyio.Event()
    happened.set()
    with anyio.fail_after(PATIENCE_S):
        await first_of(anyio.sleep_forever, happened.wait)


async def test_giving_up_the_wait_gives_up_all_of_it() -> None:
    """A closed session would leave its watchers behind."""
    with anyio.move_on_after(0) as scope:
        await first_of(anyio.sleep_forever, anyio.sleep_forever)
    assert scope.cancelled_caught


# Tokens


async def test_requests_that_are_refused_together_ask_once() -> None:
    """Each call of a busy server would have the authorization server asked once more, and the last one would win."""
    asked: list[tuple[str, ...] | None] = []
    access = Access("old", asked.append)
    found: list[str] = []

    async def refused() -> None:
        found.append(await access.renewed("old"))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(refused)
        await anyio.wait_all_tasks_blocked()
        assert asked == [None]
        access.give(b"new")
    assert found == ["new"] * 3


async def test_a_request_that_was_sent_with_an_older_token_gets_the_present_one() -> None:
    """A call that was under way while the token was renewed would have it renewed again."""
    access = Access("old", lambda _: pytest.fail("there is a newer one already"))
    access.give(b"new")
    assert await access.renewed("old") == "new"


async def test_no_other_token_is_an_answer_too() -> None:
    """A call would wait for its deadline although the login is over, and the next one again."""
    access = Access("old", lambda _: access.give(b""))
    assert await access.renewed("old") == ""
    assert access.token == "old"


async def test_a_server_without_a_login_is_asked_for_nothing() -> None:
    """A server that refuses everybody would have us look for a login that nobody made."""
    access = Access("", lambda _: pytest.fail("there is no login"))
    assert await access.renewed("") == ""


async def test_a_token_that_no_header_can_hold_is_not_used() -> None:
    """A megabyte would be sent with every request."""
    access = Access("old")
    access.give(b"x" * (MAX_BEARER_BYTES + 1))
    assert access.token == "old"


async def test_the_scopes_that_a_server_wants_are_told() -> None:
    """Nobody would learn what to log in for."""
    asked: list[tuple[str, ...] | None] = []

    def ask(scopes: tuple[str, ...] | None) -> None:
        asked.append(scopes)
        access.give(b"")

    access = Access("old", ask)
    for scopes in (("write",), ()):
        assert await access.renewed("old", scopes) == ""
    assert asked == [("write",), ()]


@pytest.mark.parametrize(("first", "second"), [(("write",), None), (None, ("write",)), (("read",), ("write",))])
async def test_an_answer_to_another_question_is_none(
    first: tuple[str, ...] | None, second: tuple[str, ...] | None
) -> None:
    """A token that ended while another call lacked a scope would end the session, or nobody learn what is lacking."""
    asked: list[tuple[str, ...] | None] = []
    access = Access("old", asked.append)
    found: list[str] = []

    async def refused(scopes: tuple[str, ...] | None) -> None:
        found.append(await access.renewed("old", scopes))

    async with anyio.create_task_group() as tasks:
        for scopes in (first, second, second):
            tasks.start_soon(refused, scopes)
            await anyio.wait_all_tasks_blocked()
        access.give(b"")
        await anyio.wait_all_tasks_blocked()
        assert (asked, found) == ([first, second], [""])
        access.give(b"new")
    assert found == ["", "new", "new"]
