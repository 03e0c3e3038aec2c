"""A worker that was taken over: it proves itself with its token, then sends one message that never ends.

Started as a fresh worker is, its order as a JSON line on stdin; `FLOODING_WORKER_PART_BYTES` is the length of a part.
"""

import os
import socket
import sys
from itertools import repeat

import msgspec

from quarterdeck_protocol.envelope import encode
from quarterdeck_protocol.frames import LINK_VERSION, Hello
from quarterdeck_protocol.spawning import SpawnOrder
from quarterdeck_protocol.zmtp import HANDSHAKE, MessageBuffer, encode_message

MORE_AND_LONG = b"\x03"


def main() -> None:
    """Flood until killed."""
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=SpawnOrder)
    version = sys.argv[1]
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(order.address.removeprefix("ipc://"))
    peer.sendall(HANDSHAKE)
    messages = MessageBuffer(1 << 20, 8)
    while not messages.is_ready:
        messages.feed(peer.recv(65536))
    hello = Hello(LINK_VERSION, version, bytes.fromhex(order.token), os.getpid())
    peer.sendall(b"".join(encode_message(encode(hello))))
    size = int(os.environ.get("FLOODING_WORKER_PART_BYTES", "65536"))
    part = MORE_AND_LONG + size.to_bytes(8, "big") + bytes(size)
    for _ in repeat(None):
        peer.sendall(part)


if __name__ == "__main__":
    main()
