"""A test process's connection to the run's supervisor: requests out, futures back, read by one thread."""

import itertools
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

from quarterdeck_pytest.activation import RunAddress
from quarterdeck_pytest.messages import (
    LENGTH_BYTES,
    Answered,
    Asked,
    BadMessageError,
    Cancel,
    Failed,
    Heard,
    Hello,
    Meanwhile,
    Numbered,
    Progressed,
    Reply,
    Request,
    Said,
    Wrong,
    decode_said,
    encode,
    fault_of,
    length_of,
)

from .notifications import Told
from .pending import McpTestError

LOG_CHARS: Final = 2000  # of the supervisor's log, in the message that it is gone


class Connection:
    """A `Link` to the run's supervisor."""

    def __init__(self, address: RunAddress, worker: str) -> None:
        """Connect, which starts the supervisor at the first connection. Raise `McpTestError` if it is gone."""
        self._address = address
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Reply]] = {}
        self._meanwhile: dict[int, Callable[[Meanwhile], None]] = {}
        self._told: dict[tuple[str, str], Told] = {}
        self._is_closed = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(address.socket)
            self._send(Hello(address.token, worker))
        except OSError:
            self._socket.close()
            raise self._gone() from None
        self._thread = threading.Thread(target=self._read, name="quarterdeck-pytest-reader", daemon=True)
        self._thread.start()

    def next_id(self) -> int:
        """See `Link`."""
        return next(self._ids)

    def send(self, request: Numbered, meanwhile: Callable[[Meanwhile], None] | None = None) -> "Future[Reply]":
        """See `Link`; `meanwhile` runs in the reading thread."""
        future: Future[Reply] = Future()
        with self._lock:
            if self._is_closed:
                raise self._gone()
            self._waiting[request.id] = future
            if meanwhile is not None:
                self._meanwhile[request.id] = meanwhile
            try:
                self._send(request)
            except OSError:
                self._forget(request.id)
                raise self._gone() from None
        future.add_done_callback(lambda done: self._give_up(request.id) if done.cancelled() else None)
        return future

    def answer(self, answered: Answered) -> None:
        """See `Link`."""
        with self._lock, suppress(OSError):  # then its request has ended, too
            if not self._is_closed:
                self._send(answered)

    def told(self, key: str, server: str) -> Told:
        """See `Link`."""
        with self._lock:
            return self._told.setdefault((key, server), Told())

    def forget(self, key: str) -> None:
        """Drop the notifications of an instance that was stopped."""
        with self._lock:
            for place in [place for place in self._told if place[0] == key]:
                del self._told[place]

    def close(self) -> None:
        """Hang up; repeatable."""
        with self._lock:
            self._is_closed = True
        with suppress(OSError):  # the other end was faster
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _send(self, request: Request) -> None:
        self._socket.sendall(encode(request))

    def _give_up(self, number: int) -> None:
        with self._lock, suppress(OSError):  # then it is given up anyway
            if self._forget(number) is not None and not self._is_closed:
                self._send(Cancel(number))

    def _forget(self, number: int) -> "Future[Reply] | None":
        self._meanwhile.pop(number, None)
        return self._waiting.pop(number, None)

    def _read(self) -> None:
        try:
            while True:
                self._take(decode_said(self._exactly(length_of(self._exactly(LENGTH_BYTES)))))
        except (EOFError, OSError, BadMessageError):
            with self._lock:
                self._is_closed = True
                lost, self._waiting = tuple(self._waiting.values()), {}
            for future in lost:
                if future.set_running_or_notify_cancel():
                    future.set_exception(self._gone())

    def _take(self, said: Said) -> None:
        match said:
            case Heard():
                self.told(said.key, said.server).put(said.method, said.params, said.lost)
                return
            case Progressed() | Asked():
                with self._lock:
                    meanwhile = self._meanwhile.get(said.id)
                if meanwhile is not None:
                    meanwhile(said)
                return
        with self._lock:
            future = self._forget(said.id)
        if future is None or not future.set_running_or_notify_cancel():
            return
        match said:
            case Reply():
                future.set_result(said)
            case Failed():
                future.set_exception(fault_of(said))
            case Wrong(_, why):
                future.set_exception(McpTestError(why))

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            piece = self._socket.recv(min(count - len(parts), 1 << 20))
            if not piece:
                raise EOFError
            parts += piece
        return bytes(parts)

    def _gone(self) -> McpTestError:
        """Return the error for a lost supervisor, with its last words."""
        try:
            with self._address.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_CHARS))
                said = log.read().decode("utf-8", "replace").strip()
        except OSError:
            said = ""
        more = f"; it wrote:\n{said}" if said else ""
        return McpTestError(f"the supervisor of this test run is gone: its servers have ended with it{more}")
