"""The orders that an owner gives to what runs here, as bytes that a program without an interpreter can read in place.

Records: a byte of tag, four of the payload's length, the payload; those of one tag stay in their order.  Numbers are
little endian, integers of 8 bytes; texts end with a zero byte and hold no other.  `sandbox/native/order.c` reads them,
too.

An order for a gate is a dictionary:

    program, argv, env, cwd    what is executed, and where
    open_files                 the soft limit that it begins with, 0 for the one that there is
    rlimits                    pairs (the kernel's number, value)
    identity                   (uid, gid) that it becomes, or None
    listen                     pairs (address, port) where it will dial
    confine                    None, or `landlock` (None, or the arguments of `kernel.restrict`), `seccomp`, and `own`:
                               folders in which a broker changes mode, owner and times of files; empty: no broker
    set_apart, oom_score       see `kernel.set_apart` and `gate.raise_oom_score`
    probes                     what `gate.observe` is told

One for `readonly` has

    open                       the only paths that stay writable, none within another; None leaves all as they are
    steps                      pairs (path, whether it is closed), parents first
    argv, oom_score            what is executed then; the score that all of it gets, or None

One for the compiled `network`, which no module reads, is told by `encode_network`.
"""

import _socket
import os

TYPE_CHECKING = False  # the typing module costs more than an interpreter's start
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

MAX_BYTES = 16 * 1024 * 1024
"""Of a whole order: several times what the kernel takes of arguments and environment."""

MAX_LISTENERS = 1024

INTEGER_BYTES = 8

PROGRAM, ARGUMENT, VARIABLE, DIRECTORY, OPEN_FILES = b"PAEDF"
RLIMIT, IDENTITY, LISTENER, CONFINE, LANDLOCK = b"LINCT"
READ, WRITE, DEVICE, SECCOMP, SET_APART, OWN = b"RWVSXM"
OOM_SCORE, OWNER, SECRET, FIXED, LIMIT_SEEN = b"Oosfl"
ALL_CLOSED, KEPT_OPEN, STEP = b"ZKY"
SETTING, INTERFACE, MESSAGE = b"gim"

TEXTS = (PROGRAM, ARGUMENT, VARIABLE, DIRECTORY, READ, WRITE, DEVICE, OWN, SECRET, FIXED, KEPT_OPEN)
INTEGERS = {RLIMIT: 2, IDENTITY: 2} | dict.fromkeys((OPEN_FILES, LANDLOCK, OOM_SCORE, OWNER, LIMIT_SEEN), 1)
"""How many of them a record has."""

NetlinkMessage = tuple[int, int, bytes, str]
"""Protocol, place of an interface's index (0 for none), the message, words for a failure."""

NEEDED = (PROGRAM, ARGUMENT, DIRECTORY, OWNER)

INSTRUCTION_BYTES = 8
MAX_INSTRUCTIONS = 0xFFFF
ADDRESS_BYTES = (4, 16)


def encode(order: "dict[str, Any]") -> bytes:
    """An order as bytes.

    Raises:
        ValueError: what cannot be said to the kernel either: a zero byte, a variable whose name is empty or has `=`, a
            text of characters that no path can have; or it is larger than `MAX_BYTES`.
    """
    if len(order["listen"]) > MAX_LISTENERS:
        raise ValueError("the order is too large")
    return _joined(_records(order))


def encode_closing(closing: "dict[str, Any]") -> bytes:
    """An order for `readonly` as bytes.

    Raises:
        ValueError: as of `encode`.
    """
    return _joined(_records_of_closing(closing))


def encode_network(
    settings: "Iterable[tuple[str, str, bool]]", interface: str, messages: "Iterable[NetlinkMessage]"
) -> bytes:
    """An order for the compiled `network` as bytes.

    Args:
        settings: paths below /proc/sys with their values, and whether they are needed.
        interface: the one whose index goes into messages; empty for none.
        messages: sent one after another.

    Raises:
        ValueError: as of `encode`.
    """
    records = [(SETTING, bytes((needed,)) + _text(f"{path}={value}")) for path, value, needed in settings]
    if interface:
        records.append((INTERFACE, _text(interface)))
    for protocol, index_at, message, words in messages:
        records.append((MESSAGE, _integers(protocol, index_at, len(message)) + message + _text(words)))
    return _joined(iter(records))


def _joined(records: "Iterator[tuple[int, bytes]]") -> bytes:
    data = b"".join(bytes((tag,)) + len(payload).to_bytes(4, "little") + payload for tag, payload in records)
    if len(data) > MAX_BYTES:
        raise ValueError("the order is too large")
    return data


def _records(order: "dict[str, Any]") -> "Iterator[tuple[int, bytes]]":
    probes, confine = order["probes"], order["confine"]
    yield PROGRAM, _text(order["program"])
    for word in order["argv"]:
        yield ARGUMENT, _text(word)
    for name, value in order["env"].items():
        if not name or "=" in name:
            raise ValueError(f"no variable can be called {name!r}")
        yield VARIABLE, _text(f"{name}={value}")
    yield DIRECTORY, _text(order["cwd"])
    if order["open_files"]:
        yield OPEN_FILES, _integers(order["open_files"])
    for number, value in order["rlimits"]:
        yield RLIMIT, _integers(number, value)
    if order["identity"] is not None:
        yield IDENTITY, _integers(*order["identity"])
    for address, port in order["listen"]:
        packed = _packed(address)
        yield LISTENER, _integers(port, len(packed)) + packed + _text(address)
    if confine is not None:
        yield CONFINE, b""
        if (landlock := confine["landlock"]) is not None:
            yield LANDLOCK, _integers(landlock["deny_tcp"])
            for tag, name in ((READ, "read"), (WRITE, "write"), (DEVICE, "devices")):
                for path in landlock[name]:
                    yield tag, _text(path)
        if confine["seccomp"]:
            yield SECCOMP, confine["seccomp"]
        for path in confine["own"]:
            yield OWN, _text(path)
    if order["set_apart"]:
        yield SET_APART, b""
    if order["oom_score"] is not None:
        yield OOM_SCORE, _integers(order["oom_score"])
    yield OWNER, _integers(probes["owner"])
    for tag, name in ((SECRET, "secrets"), (FIXED, "fixed")):
        for path in probes[name]:
            yield tag, _text(path)
    for number in probes["rlimits"]:
        yield LIMIT_SEEN, _integers(number)


def _records_of_closing(closing: "dict[str, Any]") -> "Iterator[tuple[int, bytes]]":
    for word in closing["argv"]:
        yield ARGUMENT, _text(word)
    if closing["open"] is not None:
        yield ALL_CLOSED, b""
        for path in closing["open"]:
            yield KEPT_OPEN, _text(path)
    for path, is_closed in closing["steps"]:
        yield STEP, bytes((is_closed,)) + _text(path)
    if closing["oom_score"] is not None:
        yield OOM_SCORE, _integers(closing["oom_score"])


def _text(text: str) -> bytes:
    data = os.fsencode(text)
    if b"\0" in data:
        raise ValueError("a text holds a zero byte")
    return data + b"\0"


def _integers(*values: int) -> bytes:
    return b"".join(value.to_bytes(INTEGER_BYTES, "little", signed=True) for value in values)


def _packed(address: str) -> bytes:
    return _socket.inet_pton(_socket.AF_INET6 if ":" in address else _socket.AF_INET, address)


def decode(data: bytes) -> "dict[str, Any]":
    """The order that these bytes stand for.

    Raises:
        ValueError: they are none.
    """
    found = _read(data)
    if not all(tag in found for tag in NEEDED) or len(found.get(LISTENER, ())) > MAX_LISTENERS:
        raise ValueError("no order")

    def texts(tag: int) -> list[str]:
        return _texts_of(found, tag)

    def integers(tag: int) -> list[tuple[int, ...]]:
        return [_integers_of(payload) for payload in found.get(tag, ())]

    def one(values: "list[Any]") -> "Any":
        return values[0] if values else None

    landlock = one(integers(LANDLOCK))
    confine = {
        "landlock": landlock
        and {"read": texts(READ), "write": texts(WRITE), "devices": texts(DEVICE), "deny_tcp": bool(landlock[0])},
        "seccomp": one(found.get(SECCOMP, [])) or b"",
        "own": texts(OWN),
    }
    return {
        "program": texts(PROGRAM)[0],
        "argv": texts(ARGUMENT),
        "env": dict(text.partition("=")[::2] for text in texts(VARIABLE)),
        "cwd": texts(DIRECTORY)[0],
        "open_files": (one(integers(OPEN_FILES)) or (0,))[0],
        "rlimits": integers(RLIMIT),
        "identity": one(integers(IDENTITY)),
        "listen": [_listener(payload) for payload in found.get(LISTENER, ())],
        "confine": confine if CONFINE in found else None,
        "set_apart": SET_APART in found,
        "oom_score": (one(integers(OOM_SCORE)) or (None,))[0],
        "probes": {
            "owner": integers(OWNER)[0][0],
            "secrets": texts(SECRET),
            "fixed": texts(FIXED),
            "rlimits": [number for (number,) in integers(LIMIT_SEEN)],
        },
    }


def decode_closing(data: bytes) -> "dict[str, Any]":
    """The order for `readonly` that these bytes stand for.

    Raises:
        ValueError: they are none.
    """
    found = _read(data)
    if ARGUMENT not in found:
        raise ValueError("no order")
    return {
        "argv": _texts_of(found, ARGUMENT),
        "open": _texts_of(found, KEPT_OPEN) if ALL_CLOSED in found else None,
        "steps": [(os.fsdecode(payload[1:-1]), bool(payload[0])) for payload in found.get(STEP, ())],
        "oom_score": next((_integers_of(payload)[0] for payload in found.get(OOM_SCORE, ())), None),
    }


def _read(data: bytes) -> "dict[int, list[bytes]]":
    """The payloads of all records by tag, each of the shape of its tag."""
    found: dict[int, list[bytes]] = {}
    at = 0
    while at < len(data):
        begins = at + 5
        end = begins + int.from_bytes(data[at + 1 : begins], "little")
        tag, payload = data[at], data[begins:end]
        if not begins <= end <= len(data) or not _fits(tag, payload):
            raise ValueError(f"no record: {data[at:end]!r}")
        found.setdefault(tag, []).append(payload)
        at = end
    return found


def _texts_of(found: "dict[int, list[bytes]]", tag: int) -> list[str]:
    return [os.fsdecode(payload[:-1]) for payload in found.get(tag, ())]


def _fits(tag: int, payload: bytes) -> bool:
    """Whether a payload has the shape of its tag."""
    if tag in TEXTS:
        return payload.find(b"\0") == len(payload) - 1 >= 0
    if tag in INTEGERS:
        return len(payload) == INTEGERS[tag] * INTEGER_BYTES
    if tag in (CONFINE, SET_APART, ALL_CLOSED):
        return not payload
    if tag == STEP:
        return _fits(KEPT_OPEN, payload[1:])
    if tag == SECCOMP:
        count, rest = divmod(len(payload), INSTRUCTION_BYTES)
        return 0 < count <= MAX_INSTRUCTIONS and not rest
    if tag == LISTENER and len(payload) > 2 * INTEGER_BYTES:
        _, length = _integers_of(payload[: 2 * INTEGER_BYTES])
        return length in ADDRESS_BYTES and _fits(PROGRAM, payload[2 * INTEGER_BYTES + length :])
    return False


def _integers_of(payload: bytes) -> tuple[int, ...]:
    return tuple(
        int.from_bytes(payload[at : at + INTEGER_BYTES], "little", signed=True)
        for at in range(0, len(payload), INTEGER_BYTES)
    )


def _listener(payload: bytes) -> tuple[str, int]:
    port, length = _integers_of(payload[: 2 * INTEGER_BYTES])
    return os.fsdecode(payload[2 * INTEGER_BYTES + length : -1]), port
