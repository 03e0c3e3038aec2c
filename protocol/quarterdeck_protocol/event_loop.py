"""The event loop of our processes: asyncio's own, with a shorter wait.  Impure, as `io.py` and `tls.py` are.

One call wakes supervisor and worker twice each, and each wake goes through the loop's selector.  The one of the
standard library rounds the time to wait, which `epoll.poll` rounds by itself, and looks up every descriptor by a call.
"""

import asyncio
import select
from collections.abc import Iterator, Mapping
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector, SelectorKey
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

_BOTH: Final = EVENT_READ | EVENT_WRITE


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop; a system without epoll has the selector of the standard library."""
    return asyncio.SelectorEventLoop(EpollSelector() if hasattr(select, "epoll") else None)


class EpollSelector(BaseSelector):
    """`selectors.EpollSelector` in half its steps, for descriptors and sockets."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._keys: dict[FileDescriptorLike, SelectorKey] = {}
        self._map: Final = _Keys(self, self._keys)
        # What `select` tells of the usual events; of any other both: whoever reads or writes then learns why.
        self._told = {select.EPOLLIN: EVENT_READ, select.EPOLLOUT: EVENT_WRITE}

    def register(self, fileobj: "FileDescriptorLike", events: int, data: object = None) -> SelectorKey:
        """See `BaseSelector`."""
        key = SelectorKey(fileobj, _descriptor(fileobj), events, data)
        if key.fd in self._keys:
            raise KeyError(f"descriptor {key.fd} is registered already")
        self._epoll.register(key.fd, _wanted(events))
        self._keys[key.fd] = key
        return key

    def unregister(self, fileobj: "FileDescriptorLike") -> SelectorKey:
        """See `BaseSelector`."""
        key = self._keys.pop(self.get_key(fileobj).fd)
        try:
            self._epoll.unregister(key.fd)
        except OSError:
            pass  # it was closed before
        return key

    def modify(self, fileobj: "FileDescriptorLike", events: int, data: object = None) -> SelectorKey:
        """See `BaseSelector`."""
        key = self.get_key(fileobj)
        if events != key.events:
            self._epoll.modify(key.fd, _wanted(events))
        changed = self._keys[key.fd] = key._replace(events=events, data=data)
        return changed

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """See `BaseSelector`; `timeout` is not negative."""
        keys, told, ready = self._keys, self._told, []
        for fd, events in self._epoll.poll(timeout, len(keys) or 1):
            # One that was closed before it was unregistered may still be told of, where another process has it.
            if (key := keys.get(fd)) is not None:
                ready.append((key, told.get(events, _BOTH) & key.events))
        return ready

    def close(self) -> None:
        """See `BaseSelector`."""
        self._epoll.close()
        self._keys.clear()

    def get_map(self) -> Mapping["FileDescriptorLike", SelectorKey]:
        """See `BaseSelector`; event loops ask it at each new reader, from Python 3.13 on by the socket, too."""
        return self._map

    def get_key(self, fileobj: "FileDescriptorLike") -> SelectorKey:
        """See `BaseSelector`; a socket that was closed meanwhile is still known."""
        if (fd := _descriptor(fileobj)) >= 0:
            return self._keys[fd]
        for key in self._keys.values():
            if key.fileobj is fileobj:
                return key
        raise KeyError(fileobj)


class _Keys(Mapping["FileDescriptorLike", SelectorKey]):
    """A selector's keys, by their descriptors or sockets."""

    def __init__(self, selector: EpollSelector, keys: Mapping["FileDescriptorLike", SelectorKey]) -> None:
        self._selector = selector
        self._keys = keys

    def __getitem__(self, fileobj: "FileDescriptorLike") -> SelectorKey:
        return self._selector.get_key(fileobj)

    def __iter__(self) -> "Iterator[FileDescriptorLike]":
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def _descriptor(fileobj: "FileDescriptorLike") -> int:
    return fileobj if isinstance(fileobj, int) else fileobj.fileno()


def _wanted(events: int) -> int:
    wanted = select.EPOLLIN if events & EVENT_READ else 0
    return wanted | select.EPOLLOUT if events & EVENT_WRITE else wanted
