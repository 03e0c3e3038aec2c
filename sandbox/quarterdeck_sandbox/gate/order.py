"""The orders of an owner to the gate, as bytes that `sandbox/native/order.c` reads in place.

Records: a byte of tag, four of the payload's length, the payload; those of one tag stay in their order.  Numbers are
little endian, integers of 8 bytes; texts end with a zero byte and hold no other.

Each function raises ValueError for what the kernel could not be told either (a zero byte, a variable whose name is
empty or has `=`, a text of characters that no path can have), and for an order larger than `MAX_BYTES`.
"""

import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from quarterdeck_sandbox.policy.tiers import Rules

MAX_BYTES: Final = 16 * 1024 * 1024
"""Of a whole order: several times the kernel's limit of arguments and environment."""

MAX_LISTENERS: Final = 1024

_PROGRAM, _ARGUMENT, _VARIABLE, _DIRECTORY, _OPEN_FILES = b"PAEDF"
_RLIMIT, _IDENTITY, _LISTENER, _CONFINE, _LANDLOCK = b"LINCT"
_READ, _WRITE, _DEVICE, _SECCOMP, _SET_APART, _OWN = b"RWVSXM"
_OOM_SCORE, _OWNER, _SECRET, _FIXED = b"Oosf"
_ALL_CLOSED, _KEPT_OPEN, _STEP = b"ZKY"
_SETTING, _INTERFACE, _MESSAGE = b"gim"

NetlinkMessage = tuple[int, int, bytes, str]
"""Protocol, place of an interface's index (0 for none), the message, words for a failure."""

_Records = Iterable[tuple[int, bytes]]


def encode_start(
    argv: Sequence[str],  # the words of the command
    *,
    program: str = "",  # its path; empty if that is the first word
    env: Mapping[str, str],  # its whole environment
    cwd: str = "/",  # where it starts
    open_files: int = 0,  # its soft limit of open files, 0 to keep it
    rlimits: Iterable[tuple[int, int]] = (),  # pairs (the kernel's number, value); those in force are reported
    identity: tuple[int, int] | None = None,  # the (uid, gid) to become
    listen: Sequence[tuple[str, int]] = (),  # pairs (address, port) that it will dial
    rules: Rules | None = None,  # how the gate confines itself
    set_apart: bool = False,  # give up the memory and the signals of processes outside
    oom_score: int | None = None,  # for /proc/self/oom_score_adj
    owner: int,  # a process id outside, which it tries to see and to signal
    secrets: Iterable[str] = (),  # paths that must not open
    fixed: Iterable[str] = (),  # paths that must not be writable
) -> bytes:
    """Encode the order for `gate`: what it prepares, executes and reports."""
    if len(listen) > MAX_LISTENERS:
        raise ValueError("the order is too large")

    def records() -> Iterator[tuple[int, bytes]]:
        yield _PROGRAM, _text(program or argv[0])
        yield from _texts(_ARGUMENT, argv)
        for name, text in env.items():
            if not name or "=" in name:
                raise ValueError(f"no variable can be called {name!r}")
            yield _VARIABLE, _text(f"{name}={text}")
        yield _DIRECTORY, _text(cwd)
        if open_files:
            yield _OPEN_FILES, _integers(open_files)
        for number, value in rlimits:
            yield _RLIMIT, _integers(number, value)
        if identity is not None:
            yield _IDENTITY, _integers(*identity)
        for address, port in listen:
            packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
            yield _LISTENER, _integers(port, len(packed)) + packed + _text(address)
        if rules is not None:
            yield from _rules(rules)
        if set_apart:
            yield _SET_APART, b""
        yield from _score(oom_score)
        yield _OWNER, _integers(owner)
        yield from _texts(_SECRET, secrets)
        yield from _texts(_FIXED, fixed)

    return _joined(records())


def encode_closing(
    argv: Iterable[str],
    steps: Iterable[tuple[str, bool]],
    *,
    opened: Iterable[str] | None = None,
    oom_score: int | None = None,
) -> bytes:
    """Encode the order for `readonly`.

    Args:
        argv: the command to execute then.
        steps: pairs (path, whether it is closed), parents first.
        opened: the only paths that stay writable, none within another; None leaves all as they are.
        oom_score: the score of all that is started.
    """

    def records() -> Iterator[tuple[int, bytes]]:
        yield from _texts(_ARGUMENT, argv)
        if opened is not None:
            yield _ALL_CLOSED, b""
            yield from _texts(_KEPT_OPEN, opened)
        for path, is_closed in steps:
            yield _STEP, bytes((is_closed,)) + _text(path)
        yield from _score(oom_score)

    return _joined(records())


def encode_network(
    settings: Iterable[tuple[str, str, bool]], interface: str, messages: Iterable[NetlinkMessage]
) -> bytes:
    """Encode the order for `network`.

    Args:
        settings: paths below /proc/sys with their values, and whether they are needed.
        interface: whose index goes into messages; empty for none.
        messages: sent one after another.
    """

    def records() -> Iterator[tuple[int, bytes]]:
        for path, value, needed in settings:
            yield _SETTING, bytes((needed,)) + _text(f"{path}={value}")
        if interface:
            yield _INTERFACE, _text(interface)
        for protocol, index_at, message, words in messages:
            yield _MESSAGE, _integers(protocol, index_at, len(message)) + message + _text(words)

    return _joined(records())


def _rules(rules: Rules) -> Iterator[tuple[int, bytes]]:
    yield _CONFINE, b""
    if rules.uses_landlock:
        yield _LANDLOCK, _integers(rules.deny_tcp)
        yield from _texts(_READ, rules.read)
        yield from _texts(_WRITE, rules.write)
        yield from _texts(_DEVICE, rules.devices)
    if rules.seccomp:
        yield _SECCOMP, rules.seccomp
    yield from _texts(_OWN, rules.own)


def _joined(records: _Records) -> bytes:
    data = b"".join(bytes((tag,)) + len(payload).to_bytes(4, "little") + payload for tag, payload in records)
    if len(data) > MAX_BYTES:
        raise ValueError("the order is too large")
    return data


def _score(score: int | None) -> _Records:
    return () if score is None else ((_OOM_SCORE, _integers(score)),)


def _texts(tag: int, texts: Iterable[str]) -> _Records:
    return ((tag, _text(text)) for text in texts)


def _text(text: str) -> bytes:
    data = os.fsencode(text)
    if b"\0" in data:
        raise ValueError("a text holds a zero byte")
    return data + b"\0"


def _integers(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, "little", signed=True) for value in values)
