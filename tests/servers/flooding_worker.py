"""A worker that was taken over: it proves itself with its token, then floods, as `FLOODING_WORKER` says, until killed.

Started as a fresh worker is, its order as a JSON line on stdin.
"""

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain, repeat

import msgspec

from quarterdeck_protocol.link.frame_bytes import encode
from quarterdeck_protocol.link.frames import LINK_VERSION, Beat, Hello
from quarterdeck_protocol.link.zmtp import DEALER, encode_message, handshake
from quarterdeck_protocol.spawn_orders import SpawnOrder

MORE, LONG = 1, 2

ALLOWED = 64 * 1024 * 1024
"""The largest body that the server's configuration allows."""


def part(flags: int, size: int) -> bytes:
    return bytes([flags | LONG]) + size.to_bytes(8, "big")


def parts_without_end(size: int) -> Iterator[bytes]:
    return repeat(part(MORE, size) + bytes(size))


def body(size: int, sent: int) -> Iterator[bytes]:
    """A header, and a body of which so much is sent, and then nothing."""
    yield part(MORE, 4) + bytes(4) + part(0, size)
    yield from repeat(bytes(65_536), sent // 65_536)
    time.sleep(600)


FLOODS: dict[str, Callable[[], Iterator[bytes]]] = {
    "small parts": lambda: parts_without_end(65_536),
    "large parts": lambda: parts_without_end(8_000_000),
    "empty parts": lambda: repeat(bytes([MORE, 0]) * 30_000),
    "a body too large": lambda: body(ALLOWED * 8, ALLOWED * 8),
    "a body that never ends": lambda: body(ALLOWED, ALLOWED - 1),
    "commands": lambda: repeat(b"\x04\x05\x04PING" * 10_000),
    "beats": lambda: repeat(b"".join(encode_message(encode(Beat()))) * 10_000),
}


def main() -> None:
    """Flood until killed."""
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=SpawnOrder)
    hello = Hello(LINK_VERSION, sys.argv[1], bytes.fromhex(order.token), os.getpid())
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(order.address.removeprefix("ipc://"))
    for data in chain([handshake(DEALER), *encode_message(encode(hello))], FLOODS[os.environ["FLOODING_WORKER"]]()):
        peer.sendall(data)


if __name__ == "__main__":
    main()
