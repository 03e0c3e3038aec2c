"""Listen where the program will dial, and hand the listening sockets out.

Runs in the sandbox's own network namespace, whose loopback is up.  A listening socket belongs to the namespace that it
was made in, whoever holds it: our owner outside accepts on it, and nothing of ours stays inside.
"""

import _socket
import sys

BATCH = 200
"""Descriptors a message; the kernel takes 253 (SCM_MAX_FD)."""

BACKLOG = 128
"""Connections that wait for our owner to accept them."""


def open_listeners(control: "_socket.socket", pairs: "list[tuple[str, int]]") -> None:
    """Listen on each `(address, port)`, send all over `control` in their order, a byte with each batch.

    Raises:
        OSError: an address that cannot be listened on; ports below `net.ipv4.ip_unprivileged_port_start` need
            CAP_NET_BIND_SERVICE in the user namespace that owns the network.
    """
    listeners = [_listen(pair) for pair in pairs]
    for start in range(0, len(listeners), BATCH):
        batch = b"".join(one.fileno().to_bytes(4, sys.byteorder) for one in listeners[start : start + BATCH])
        control.sendmsg([b"l"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, batch)])
    for listener in listeners:
        listener.close()


def _listen(pair: "tuple[str, int]") -> "_socket.socket":
    family = _socket.AF_INET6 if ":" in pair[0] else _socket.AF_INET
    listener = _socket.socket(family, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    try:
        listener.bind(pair)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot listen on {pair[0]}:{pair[1]}: {error.strerror}") from None
    listener.listen(BACKLOG)
    return listener
