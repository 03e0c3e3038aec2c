"""What tokens allow, for how long, how often; and whose a token is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from quarterdeck.host.http.grants import (
    KEPT_S,
    MAX_GRANTS,
    NO_GRANTS,
    Bucket,
    Grant,
    Grants,
    GrantState,
    Rate,
    check_name,
    check_patterns,
    digest_of,
    parse_rate,
    parse_span,
)

KEY = "ab" * 32
NOW = 1_000_000_000.0


def grant(name: str = "ci", token: str = "t", **limits: object) -> Grant:
    return Grant(name=name, digest=digest_of(token, KEY), created_at=NOW, **limits)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limits", "allowed", "refused"),
    [
        ({}, ["fs__read", "web__get", "read", "bash"], []),
        ({"servers": ("fs",)}, ["fs__read"], ["web__get", "fsx__read", "read", "bash", "fs"]),
        ({"servers": ("fs",), "profile": "authoring"}, ["fs__read", "read"], ["web__get", "bash"]),
        ({"profile": "authoring"}, ["fs__read", "web__get", "read"], ["bash"]),
        ({"tools": ("fs__re*", "bash")}, ["fs__read", "bash"], ["fs__write", "web__read", "read", "FS__read"]),
        ({"servers": ("web",), "tools": ("*__read",)}, ["web__read"], ["fs__read", "web__get", "read"]),
    ],
)
def test_a_token_allows_what_it_names_and_nothing_else(
    limits: dict[str, object], allowed: list[str], refused: list[str]
) -> None:
    """Whoever was given one server could call another, or run commands."""
    made = grant(**limits)
    assert [name for name in allowed if not made.allows(name, {"read"})] == []
    assert [name for name in refused if made.allows(name, {"read"})] == []
    assert made.is_limited is bool(limits)


@pytest.mark.parametrize(
    ("limits", "known", "unknown"),
    [
        ({}, ["fs", "web"], []),
        ({"profile": "authoring"}, ["fs", "web"], []),
        ({"servers": ("fs",)}, ["fs"], ["web", "f", "fsx"]),
        ({"servers": ("fs",), "tools": ("web__*",)}, [], ["fs", "web"]),
        ({"tools": ("fs__re*", "bash")}, ["fs"], ["web", "bash", "fs2"]),
        ({"tools": ("fs__read",)}, ["fs"], ["web", "f"]),
        ({"tools": ("*__read",)}, ["fs", "web"], []),
        ({"tools": ("*",)}, ["fs"], []),
        ({"tools": ("f?__[a-c]*",)}, ["fs", "fx"], ["web", "fsx"]),
        ({"tools": ("[!w]*",)}, ["fs"], ["web"]),
        ({"tools": ("[]f]s__[x",)}, ["fs"], ["web"]),
        ({"tools": ("fs", "fs__", "fs_")}, [], ["fs"]),
    ],
)
def test_a_token_knows_of_the_servers_of_which_it_may_use_something(
    limits: dict[str, object], known: list[str], unknown: list[str]
) -> None:
    """A token for a few tools would hear no news of their own server; or one for a server of all the others."""
    made = grant(**limits)
    assert [server for server in known if not made.allows_some_of(server)] == []
    assert [server for server in unknown if made.allows_some_of(server)] == []


@given(st.text("fs_*?[]!-ab", min_size=1, max_size=8), st.text("fs_ab", min_size=1, max_size=4))
def test_whoever_may_use_a_tool_knows_of_its_server(pattern: str, tool: str) -> None:
    """News of a server would be kept from a token that calls it, because its pattern is written oddly."""
    made = grant(tools=(pattern,))
    assert made.allows_some_of("fs") or not made.allows(f"fs__{tool}", ())


def test_a_token_is_found_by_itself_alone() -> None:
    """A hash that leaked would open what its token does; so would a token that is nearly it."""
    grants = Grants(KEY, (grant("a", "one"), grant("b", "two")))
    found = grants.find("two")
    assert found.name == "b"
    for wrong in ("", "tw", "twoo", "Two", grants.grants[1].digest, "\xe9", "\udcff"):
        assert grants.find(wrong) is None
    assert replace(grants, key="cd" * 32).find("two") is None
    assert found.client.key != grants.grants[0].client.key


def test_a_token_ends_by_its_time_or_when_it_is_revoked() -> None:
    """One that was given for a day would open for ever."""
    made = grant(expires_at=NOW + 10)
    assert made.state(NOW + 9.9) is GrantState.LIVE
    assert made.state(NOW + 10) is GrantState.EXPIRED
    revoked = Grants(KEY, (made,)).without("ci", NOW + 5)
    assert revoked.grants[0].state(NOW + 5) is GrantState.REVOKED
    assert revoked.without("ci", NOW + 6) == revoked
    assert revoked.without("other", NOW + 6) == revoked


def test_a_name_is_free_again_when_its_token_has_ended() -> None:
    """Two tokens of one name could not be told apart; or a name be used once in a lifetime."""
    grants = Grants(KEY).with_grant(grant(), NOW)
    with pytest.raises(ValueError, match="there is a token called 'ci'"):
        grants.with_grant(grant(token="u"), NOW)
    both = grants.without("ci", NOW).with_grant(grant(token="u"), NOW)
    assert [each.state(NOW) for each in both.grants] == [GrantState.REVOKED, GrantState.LIVE]
    later = both.with_grant(grant("x", "v"), NOW + KEPT_S + 1)
    assert [each.name for each in later.grants] == ["ci", "x"]


def test_there_are_never_more_than_a_request_can_be_compared_with() -> None:
    """A script that makes tokens would slow every request down, for good."""
    grants = Grants(KEY)
    for number in range(MAX_GRANTS):
        grants = grants.with_grant(grant(f"n{number}", str(number)), NOW)
    with pytest.raises(ValueError, match="there are 256 tokens"):
        grants.with_grant(grant(), NOW)
    assert NO_GRANTS.live("n1", NOW) is None


@given(st.lists(st.floats(0, 5), max_size=60), st.integers(1, 20), st.sampled_from([1.0, 60.0]))
def test_a_bucket_never_gives_more_than_its_rate(pauses: list[float], count: int, per_s: float) -> None:
    """A flood would get through, or a calm client wait longer than it is told."""
    now, given_at = 0.0, list[float]()
    bucket = Bucket(Rate(count, per_s), now)
    for pause in pauses:
        now += pause
        wait = bucket.take(now)
        if not wait:
            given_at.append(now)
        else:
            assert wait <= per_s / count + 1e-6
    for start in given_at:
        in_span = [at for at in given_at if start <= at < start + per_s]
        assert len(in_span) <= 2 * count


def test_a_bucket_fills_evenly() -> None:
    """A client that waits as long as it is told would be refused again."""
    bucket = Bucket(Rate(2, 1.0), 0.0)
    assert [bucket.take(0.0), bucket.take(0.0)] == [0.0, 0.0]
    assert bucket.take(0.0) == pytest.approx(0.5)
    assert bucket.take(0.5) == 0.0
    assert bucket.take(0.5) == pytest.approx(0.5)


@pytest.mark.parametrize(("text", "rate"), [("20/s", Rate(20, 1)), ("1/m", Rate(1, 60)), ("1000/h", Rate(1000, 3600))])
def test_a_rate_is_read_and_shown(text: str, rate: Rate) -> None:
    """A limit would be another one than what was typed."""
    assert parse_rate(text) == rate
    assert str(rate) == text


@pytest.mark.parametrize("text", ["", "20", "0/s", "-1/s", "1.5/s", "20/d", "20/", "/s", "20 /s", "99999999/s"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    """A typo would be no limit."""
    with pytest.raises(ValueError, match="is not a rate"):
        parse_rate(text)


def test_a_span_of_time_is_read() -> None:
    """A token would end at another time than the one that was meant."""
    assert [parse_span(text) for text in ("45s", "90m", "12h", "30d", "2w")] == [45, 5400, 43200, 2592000, 1209600]
    assert parse_span("never") is None
    for text in ("", "30", "d", "0d", "-1d", "1.5h", "30 d", "1y", "9999999d"):
        with pytest.raises(ValueError, match="is not a span of time"):
            parse_span(text)


def test_a_name_can_be_shown_in_a_line_and_is_no_path() -> None:
    """The ledger's lines and commands would be another's to write."""
    assert [check_name(name) for name in ("ci", "a.b_c-1", "A" * 64)] == ["ci", "a.b_c-1", "A" * 64]
    for name in ("", "a b", "-a", ".a", "a/b", "é", "a\n", "A" * 65):
        with pytest.raises(ValueError, match="cannot be a token's name"):
            check_name(name)
    with pytest.raises(ValueError, match="token of quarterdeck token show"):
        check_name("owner")
    assert check_patterns(["fs__*"]) == ("fs__*",)
    for pattern in ("", "a\n", "x" * 257):
        with pytest.raises(ValueError, match="is not a pattern"):
            check_patterns([pattern])
