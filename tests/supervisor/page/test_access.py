"""One-time links, sessions and the tokens of forms."""

from itertools import count

from quarterdeck.page.access import LINK_S, MAX_LINKS, MAX_SESSIONS, SESSION_S, Access


def make() -> Access:
    numbers = count()
    return Access(lambda: f"secret {next(numbers)}")


def test_a_link_opens_one_session_once_and_not_after_a_minute() -> None:
    """Who finds a link in a history, or reads it over a shoulder, would open the page."""
    access = make()
    link, late = access.link(0.0, may_act=True), access.link(0.0, may_act=True)
    assert access.open("another", 1.0) is None
    cookie = access.open(link, 1.0)
    assert cookie is not None
    assert access.open(link, 1.0) is None
    assert access.open(late, LINK_S) is None
    assert access.open(late, 1.0) is None
    assert access.session(cookie, 2.0) is not None
    assert access.session(link, 2.0) is None
    access.leave(cookie)
    assert access.session(cookie, 2.0) is None


def test_a_session_ends_without_use_and_links_and_sessions_are_bounded() -> None:
    """A cookie of last year would open the page; and each link that nobody opens would be kept for ever."""
    access = make()
    old = access.open(access.link(0.0, may_act=True), 0.0)
    assert old is not None
    assert access.session(old, SESSION_S) is not None
    assert access.session(old, 2 * SESSION_S + 1) is None
    first = access.link(0.0, may_act=True)
    for _ in range(MAX_LINKS):
        access.link(0.0, may_act=True)
    assert access.open(first, 1.0) is None
    cookies = [access.open(access.link(at, may_act=True), at) for at in range(MAX_SESSIONS + 1)]
    assert [access.session(cookie or "", 99.0) is not None for cookie in cookies] == [False] + [True] * MAX_SESSIONS


def test_a_token_opens_the_page_to_look_until_it_is_revoked() -> None:
    """A colleague who has left would still look at every call, by an old cookie."""
    live = {"theirs"}
    numbers = count()
    access = Access(lambda: f"secret {next(numbers)}", live.__contains__)
    assert access.enter("another", 0.0) is None
    assert access.enter("", 0.0) is None
    cookie = access.enter("theirs", 0.0)
    assert cookie is not None
    session = access.session(cookie, 1.0)
    assert session is not None
    assert not session.may_act
    live.clear()
    assert not access.is_open(cookie)
    assert access.session(cookie, 2.0) is None
    live.add("theirs")
    assert access.session(cookie, 3.0) is None
    acting = access.open(access.link(4.0, may_act=True), 4.0)
    looking = [access.enter("theirs", 5.0) for _ in range(MAX_SESSIONS)]
    assert access.session(acting or "", 6.0) is not None, "however often one token is used"
    assert access.session(looking[0] or "", 6.0) is None


def test_a_form_takes_its_own_token_of_its_own_session_that_may_act() -> None:
    """A page of another site, or another form, would approve what nobody looked at."""
    access = make()
    cookies = [access.open(access.link(0.0, may_act=may_act), 0.0) or "" for may_act in (True, True, False)]
    one, other, reader = (access.session(cookie, 1.0) for cookie in cookies)
    assert one is not None
    assert other is not None
    assert reader is not None
    token = one.token_of("review/decide")
    assert one.admits("review/decide", token)
    assert not one.admits("server/restart", token)
    assert not one.admits("review/decide", "")
    assert not one.admits("review/decide", "ä" + token)
    assert not other.admits("review/decide", token)
    assert not reader.admits("review/decide", reader.token_of("review/decide"))
