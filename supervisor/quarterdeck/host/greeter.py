"""Greet a client while the rest of us is still being imported.

The SDK takes most of a second to import, and a client of the older era waits for the answer to `initialize` before it
does anything else.  That answer depends on nothing but the revision that was asked for, so it is given at once, from
here; later the SDK's session gets the same line, and its answer, which says the same, is dropped.  What is held for
a person's approval is only known later: the answer tells what the same `serve` held last time.

Imports next to nothing, on purpose.  Whatever is unusual about a first line is left to the session.
"""

import json
import os
import select
import stat
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from quarterdeck.identity import CLIENT_NAME, CLIENT_VERSION

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The revisions that begin with `initialize`; a test holds them against the SDK's."""

MAX_HEAD_BYTES: Final = 64 * 1024
"""A first line longer than this is nothing that we would answer."""

NOTICE_PLACE: Final = ("ledger", "notice")
"""Below the state directory."""

MAX_NOTICE_CHARS: Final = 4096
"""A notice is a sentence or two; what is longer is none of ours."""

_STDIN: Final = 0
_STDOUT: Final = 1


@dataclass(frozen=True, slots=True)
class Head:
    """What was read before the session could: its bytes, and the id of the request in them that has its answer."""

    data: bytes = b""
    greeted_id: int | str | None = None


class EarlyGreeter:
    """Waits for a client's first line in a thread of its own, from `start` to `finish`."""

    def __init__(self, stdin_fd: int = _STDIN, stdout_fd: int = _STDOUT, *, notice: str = "") -> None:
        self._notice = notice
        self._in = stdin_fd
        self._out = stdout_fd
        self._head = Head()
        self._stop_r, self._stop_w = os.pipe()
        self._thread = threading.Thread(target=self._wait, name="greeter", daemon=True)

    def start(self) -> None:
        """Begin to wait."""
        self._thread.start()

    def finish(self) -> Head:
        """Stop waiting; from here on the descriptors are the caller's.  To be called once."""
        os.close(self._stop_w)
        self._thread.join()
        os.close(self._stop_r)
        return self._head

    def _wait(self) -> None:
        data = b""
        poll = select.poll()
        poll.register(self._in, select.POLLIN)
        poll.register(self._stop_r, select.POLLIN)
        while b"\n" not in data and len(data) < MAX_HEAD_BYTES:
            if any(fd == self._stop_r for fd, _ in poll.poll()):
                break
            chunk = os.read(self._in, MAX_HEAD_BYTES)
            if not chunk:
                break
            data += chunk
        line, newline, _ = data.partition(b"\n")
        greeted_id, answer = answer_to(line, self._notice) if newline else (None, b"")
        try:
            while answer:
                answer = answer[os.write(self._out, answer) :]
        except OSError:
            pass  # the client has left; the session will see it too
        self._head = Head(data, greeted_id)


def answer_to(line: bytes, notice: str = "") -> tuple[int | str | None, bytes]:
    """The id and the answer, with its line's end, when `line` is an ordinary `initialize`; else None and nothing.

    `notice` becomes the instructions.
    """
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None, b""
    match message:
        case {
            "jsonrpc": "2.0",
            "id": int() | str() as request_id,
            "method": "initialize",
            "params": {
                "protocolVersion": str() as wanted,
                "capabilities": dict(),
                "clientInfo": {"name": str(), "version": str()},
            },
        } if not isinstance(request_id, bool) and len(message) == len(("jsonrpc", "id", "method", "params")):
            result: dict[str, object] = {
                "protocolVersion": wanted if wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1],
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": CLIENT_NAME, "version": CLIENT_VERSION},
            }
            if notice:
                result["instructions"] = notice
            answer = {"jsonrpc": "2.0", "id": request_id, "result": result}
            return request_id, json.dumps(answer, separators=(",", ":")).encode() + b"\n"
    return None, b""


def start_early(arguments: Sequence[str] = ()) -> None:
    """Greet on the process's standard streams, when they are pipes: a file or a terminal is nobody who waits.

    Args:
        arguments: the command line, which may name the state directory.
    """
    global _early
    mode = os.fstat(_STDIN).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        _early = EarlyGreeter(notice=read_notice(notice_path(arguments), signature(arguments)))
        _early.start()


def signature(arguments: Sequence[str]) -> str:
    """Which `serve` this is, as far as can be told before its configuration is read: a line.

    Another directory or another command line may mean other servers.
    """
    return json.dumps([os.getcwd(), *arguments[1:]])


def notice_path(arguments: Sequence[str] = ()) -> str:
    """Where the last `serve` of this state directory left word of what it holds; as `config.paths` finds it."""
    state = os.environ.get("QUARTERDECK_STATE_DIR", "")
    for argument, following in zip(arguments, (*arguments[1:], ""), strict=False):
        if argument == "--state-dir":
            state = following
        elif argument.startswith("--state-dir="):
            state = argument.partition("=")[2]
    if not state:
        is_mac = sys.platform == "darwin"
        base = "~/Library/Application Support" if is_mac else os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        state = os.path.join(base, "quarterdeck")
    return os.path.join(os.path.expanduser(state), *NOTICE_PLACE)


def read_notice(path: str, whose: str) -> str:
    """What the `serve` of this signature left there; empty for nothing, or nothing that can be used."""
    head = f"{whose}\n"
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(len(head) + MAX_NOTICE_CHARS + 1)
    except (OSError, ValueError):
        return ""
    return text.removeprefix(head) if text.startswith(head) and len(text) <= len(head) + MAX_NOTICE_CHARS else ""


def finish_early() -> Head:
    """What `start_early` has read and answered; nothing when it was not called."""
    global _early
    greeter, _early = _early, None
    return greeter.finish() if greeter is not None else Head()


_early: EarlyGreeter | None = None
