"""A worker's end of the link's socket: a ZeroMQ DEALER with one peer."""

import socket
from typing import Final

from quarterdeck_protocol.envelope import WireLimits
from quarterdeck_protocol.zmtp import DEALER, ROUTER, MessageBuffer, handshake
from quarterdeck_worker.channel import Channel, OnEnd, OnMessage

RETRY_S: Final = 0.1
"""Between two attempts to connect."""


class Dealer(Channel):
    """A channel that connects by itself."""

    def __init__(self, address: str, on_message: OnMessage, on_end: OnEnd) -> None:
        """Begin to connect; until somebody listens there, it is tried again and again.

        Args:
            address: `ipc://` and the path where the ROUTER listens.
            on_message: see `Channel`.
            on_end: see `Channel`.
        """
        messages = MessageBuffer(ROUTER, WireLimits().part_bytes)
        super().__init__(socket.socket(socket.AF_UNIX), messages, on_message, on_end)
        self._path = address.removeprefix("ipc://")
        self._connect()

    def _connect(self) -> None:
        if self._is_over:
            return
        try:
            self._socket.connect(self._path)
        except OSError:
            # Nobody is there, or too many are waiting to be let in; the link's own deadline ends it.
            self._loop.call_later(RETRY_S, self._connect)
            return
        self.begin(handshake(DEALER))
