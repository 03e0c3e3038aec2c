"""One end of a link in front of a peer that obeys no rule: whatever it sends, the end says something legal or dies."""

from math import inf

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.schemas.json_values import json_values

from quarterdeck_protocol.limits import UNIT_BYTES, units
from quarterdeck_protocol.link import frames
from quarterdeck_protocol.link.events import (
    CARRIERS,
    MAX_REASON_CHARS,
    RECEIVES,
    Arrived,
    Expired,
    Greeted,
    LinkEvent,
    Overdue,
    Replied,
    Side,
    Violated,
)
from quarterdeck_protocol.link.frame_bytes import INLINE_BYTES, decode, encode
from quarterdeck_protocol.link.session import Link

from .frame_strategies import FRAMES
from .link_ends import FAULT, LIMITS, SMALL, TOKEN, VERSION, make_link, make_pair

FREE = (frames.Hello, frames.Welcome, frames.Beat, frames.Credit)
"""Frames that cost no credit."""


def _framed(header: bytes, body: bytes = b"") -> bytes:
    return len(header).to_bytes(4, "big") + header + body


MSGPACK_VALUES = json_values(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
    | st.binary(max_size=5)
    | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=5))
    | st.builds(msgpack.Timestamp, st.integers(0, 2**33), st.integers(0, 999_999_999)),
    max_leaves=8,
)
TAGGED = st.builds(lambda tag, fields: [tag, *fields], st.integers(0, 26), st.lists(MSGPACK_VALUES, max_size=5))
SMUGGLED = st.builds(
    lambda fault, more: [25, {"kind": "timeout", "message": "m", **fault, **more}],
    st.just({}) | st.just({"code": None, "delivery": "unknown", "cause": None, "dossier": None}),
    st.dictionaries(st.sampled_from(["cause", "dossier", "zzz"]), MSGPACK_VALUES, max_size=2),
)
SMALL_BODIES = st.sampled_from([0, 0, 0, 2, INLINE_BYTES]).map(bytes)

MESSAGES: st.SearchStrategy[list[bytes]] = (
    st.lists(st.binary(max_size=30), max_size=4)
    | st.builds(lambda header, body: [_framed(header, body)], st.binary(max_size=30), SMALL_BODIES)
    | st.builds(lambda value: [_framed(msgpack.packb(value))], MSGPACK_VALUES | TAGGED | SMUGGLED)
    | st.builds(lambda value, parts: [_framed(msgpack.packb(value)), *parts], TAGGED, st.lists(st.binary(), max_size=3))
    | st.builds(lambda depth: [_framed(b"\x91" * depth)], st.sampled_from([600, 5_000, 100_000]))
    | st.builds(encode, FRAMES, SMALL_BODIES)
    | st.builds(encode, FRAMES)
    | st.builds(
        encode,
        st.sampled_from(
            [
                frames.Hello(frames.LINK_VERSION, VERSION, TOKEN, 1),
                frames.Welcome(VERSION),
                frames.Beat(),
                frames.Answer(1),
                frames.Answer(2),
                frames.Failed(1, FAULT),
                frames.List(1, 1.0),
                frames.Call(2, 1.0, "t"),
                frames.Cancel(1),
                frames.Credit(1),
                frames.ListChanged(),
                frames.Progress(1, 0.5),
                frames.Log("a", "b"),
            ]
        ),
    )
)
"""From random bytes to frames that would be right at another moment."""


def _prepared(side: Side, state: str) -> tuple[Link, set[int]]:
    if state == "new":
        return make_link(side, terms=SMALL), set()
    link = dict(zip((Side.SUPERVISOR, Side.WORKER), make_pair(SMALL), strict=True))[side]
    asked: set[int] = set()
    if state == "busy" and side is Side.SUPERVISOR:
        asked = {link.next_id() for _ in range(3)}
        for key in asked:
            assert link.request(frames.Call(key, 1.0, "t"), b"{}", 0.0) is None
        link.cancel(3)
    elif state == "busy":
        link.receive(encode(frames.List(1, 1.0)), 0.0)
        link.receive(encode(frames.List(2, 1.0)), 0.0)
        for _ in range(8):
            link.post(frames.Log("info", ""))
    return link, asked - {3}


def _is_legal(event: LinkEvent, side: Side, asked: set[int]) -> bool:
    match event:
        case Violated(reason=reason):
            return 0 < len(reason) <= MAX_REASON_CHARS
        case Greeted():
            return True
        case Replied(reply=reply):
            if reply.request_id not in asked:
                return False
            asked.remove(reply.request_id)
            return True
        case Overdue(request_id=request_id):
            return request_id in asked or request_id == 3
        case Arrived(frame=frame, body=body):
            orders = frames.Request | frames.Cancel | frames.Told
            return isinstance(frame, frames.News if side is Side.SUPERVISOR else orders) and (
                not body or type(frame) in CARRIERS
            )
        case _:
            return isinstance(event, Expired) and side is Side.WORKER


@pytest.mark.parametrize("state", ["new", "open", "busy"])
@pytest.mark.parametrize("side", Side)
@given(messages=st.lists(MESSAGES, min_size=1, max_size=12))
def test_whatever_a_peer_sends_the_link_says_something_legal_or_dies(
    side: Side, state: str, messages: list[list[bytes]]
) -> None:
    """No bytes raise, and after the first broken rule nothing more is heard of the link."""
    link, asked = _prepared(side, state)
    was_open = link.is_open
    dead = False
    for step, parts in enumerate(messages):
        now = step * 0.25
        events = [*link.receive(parts, now), *link.tick(now)]
        sent = link.take(now)
        if dead:
            assert (events, sent) == ([], [])
            continue
        assert all(_is_legal(event, side, asked) for event in events), events
        assert sum(isinstance(event, Greeted) for event in events) <= (not was_open)
        was_open = was_open or link.is_open
        for message in sent:
            assert type(decode(message, LIMITS)[0]) in RECEIVES[side.peer]
        dead = any(isinstance(event, Violated) for event in events)
        if dead:
            assert sent == []
            assert (link.is_open, link.wake_at) == (False, inf)


@pytest.mark.parametrize("side", Side)
@given(messages=st.lists(MESSAGES, min_size=1, max_size=20))
def test_a_peer_without_the_token_hears_nothing_and_opens_nothing(side: Side, messages: list[list[bytes]]) -> None:
    """A stranger on the socket gets no word out of a supervisor; a worker says its Hello and no more."""
    link = Link(side, token=b"a different token", version=VERSION, now=0.0, terms=SMALL)
    link.take(0.0)
    for parts in messages:
        events = link.receive(parts, 0.0)
        if side is Side.SUPERVISOR:
            assert all(isinstance(event, Violated) for event in events)
            assert link.take(0.0) == []
            assert not link.is_open
        elif not link.is_open:
            assert all(isinstance(event, Violated) for event in events)


@given(amounts=st.lists(st.integers(-3, 8), max_size=10), sizes=st.lists(st.sampled_from([0, 1, 3]), max_size=10))
def test_credit_cannot_be_talked_up(amounts: list[int], sizes: list[int]) -> None:
    """Whatever a peer grants, no more than one window is ever under way to it."""
    link, _ = make_pair(SMALL)
    under_way = 0
    for amount, size in zip(amounts, sizes, strict=False):
        link.request(frames.Call(link.next_id(), 1.0, "t"), b"x" * (size * UNIT_BYTES), 0.0)
        for parts in link.take(0.0):
            frame, body = decode(parts, LIMITS)
            if not isinstance(frame, FREE):
                assert under_way < SMALL.window_units
                under_way += units(len(body))
        if link.receive(encode(frames.Credit(amount)), 0.0):
            assert amount <= 0 or amount > under_way
            return
        under_way -= amount
