"""Somebody else's program, which the attacks are after: `victim.py FOLDER SHARED_KEY`, its secret in its environment.

It serves whoever knocks, by every kind of socket, and knocks at the doors that attacks may open.  The first line that
it prints says where everything is; at the end of its stdin it removes what the kernel would keep and prints, as the
last line, who came.  Standard library only; it runs under the user whom the attacks are to hurt.
"""

import ctypes
import json
import os
import selectors
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Final

SECRET: Final = os.environ["VICTIM_SECRET"]
KNOCK_S: Final = 0.05  # between two rounds of knocking

contacts: list[str] = []
libc = ctypes.CDLL(None, use_errno=True)


def listen(folder: Path) -> tuple[dict[str, socket.socket], int, str]:
    """Every kind of socket, open to everybody; the port and the abstract name."""
    tcp4 = socket.create_server(("0.0.0.0", 0))
    port = tcp4.getsockname()[1]
    found = {"tcp": tcp4, "udp": socket.socket(socket.AF_INET, socket.SOCK_DGRAM)}
    found["udp"].bind(("0.0.0.0", port))
    if socket.has_ipv6:
        try:
            found["tcp6"] = socket.create_server(("::", port), family=socket.AF_INET6)
        except OSError:
            pass  # a machine without IPv6
    name = f"victim-{os.getpid()}"
    for kind, address in (
        ("abstract", f"\0{name}"),
        ("stream", str(folder / "stream")),
        ("state", str(folder / "sup")),
    ):
        found[kind] = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        found[kind].bind(address)
        found[kind].listen()
    found["datagram"] = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    found["datagram"].bind(str(folder / "datagram"))
    for path in ("stream", "datagram", "sup"):
        (folder / path).chmod(0o777)
    return found, port, name


def serve(sockets: dict[str, socket.socket]) -> None:
    """Give the secret to whoever says hello."""
    selector = selectors.DefaultSelector()
    for kind, one in sockets.items():
        selector.register(one, selectors.EVENT_READ, kind)
    while True:
        for key, _ in selector.select():
            one, kind = key.fileobj, key.data
            assert isinstance(one, socket.socket)
            if one.type == socket.SOCK_DGRAM:
                _, address = one.recvfrom(100)
                contacts.append(kind)
                if address:
                    one.sendto(SECRET.encode(), address)
            elif kind is not None:
                caller, _ = one.accept()
                contacts.append(kind)
                selector.register(caller, selectors.EVENT_READ, None)
            else:
                try:
                    if one.recv(100):
                        one.send(SECRET.encode())
                        continue
                except OSError:
                    pass
                selector.unregister(one)
                one.close()


def knock(port: int, name: str, trap: Path) -> None:
    """Call at the doors that attacks may have opened, and fall into their traps."""
    while True:
        for family, address in ((socket.AF_INET, ("127.0.0.1", port)), (socket.AF_UNIX, f"\0{name}")):
            with socket.socket(family, socket.SOCK_STREAM) as one:
                try:
                    one.settimeout(1)
                    one.connect(address)
                    contacts.append(f"door {address}")
                    one.send(SECRET.encode())
                except OSError:
                    pass
        if trap.is_symlink():
            contacts.append("trap")
            Path(f"{trap}.seen").touch()
            trap.unlink()
        _pause.wait(KNOCK_S)


_pause = threading.Event()


def hold_shared_memory(key: int) -> int:
    """A segment and a queue that everybody may use."""
    segment = libc.shmget(key, 4096, 0o1666)
    libc.shmat.restype = ctypes.c_void_p
    libc.shmdt.argtypes = [ctypes.c_void_p]
    address = libc.shmat(segment, None, 0)
    ctypes.memmove(address, SECRET.encode(), len(SECRET))
    libc.msgget(key, 0o1666)
    return int(segment)


def main() -> None:
    """See the module."""
    folder, key = Path(sys.argv[1]), int(sys.argv[2])
    os.umask(0)
    signalled = folder / "signalled"

    def note(*_: object) -> None:
        contacts.append("signal")
        signalled.touch()

    signal.signal(signal.SIGUSR1, note)
    sockets, port, name = listen(folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        backdoor_port = free.getsockname()[1]
    trap = Path(f"/tmp/trap-{os.getpid()}")
    memory = ctypes.create_string_buffer(SECRET.encode())
    unnamed = folder / "unnamed"
    unnamed.write_text(SECRET)
    fd = os.open(unnamed, os.O_RDONLY)
    unnamed.unlink()
    shared = Path(f"/dev/shm/victim-{os.getpid()}")
    shared.write_text(SECRET)
    segment = hold_shared_memory(key)
    queue = libc.mq_open(f"/victim-{os.getpid()}".encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
    threading.Thread(target=serve, args=(sockets,), daemon=True).start()
    threading.Thread(target=knock, args=(backdoor_port, f"door-{os.getpid()}", trap), daemon=True).start()
    print(
        json.dumps(
            {
                "port": port,
                "abstract_name": name,
                "backdoor_port": backdoor_port,
                "backdoor_name": f"door-{os.getpid()}",
                "trap_name": trap.name,
                "shared_id": segment,
                "shared_name": shared.name,
                "victim": {
                    "pid": os.getpid(),
                    "uid": os.getuid(),
                    "group": os.getpgrp(),
                    "address": ctypes.addressof(memory),
                    "fd": fd,
                    "signalled_file": str(signalled),
                },
            }
        ),
        flush=True,
    )
    sys.stdin.read()
    shared.unlink()
    libc.shmctl(segment, 0, None)
    libc.msgctl(libc.msgget(key, 0), 0, None)
    if queue >= 0:
        libc.mq_unlink(f"/victim-{os.getpid()}".encode())
    for left in (trap, Path(f"{trap}.seen")):
        left.unlink(missing_ok=True)
    print(json.dumps(contacts), flush=True)


if __name__ == "__main__":
    main()
