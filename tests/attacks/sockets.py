"""Unix sockets, by name and by path: the back doors to whatever runs on the machine."""

import os
import socket
import tempfile

from arena import TARGETS, Attack, Held, attack, first_of, require

PATIENCE_S = 1.0


def _greet(address: str, kind: int = socket.SOCK_STREAM) -> str:
    with socket.socket(socket.AF_UNIX, kind) as one:
        one.settimeout(PATIENCE_S)
        one.connect(address)
        one.send(b"hello")
        if kind == socket.SOCK_STREAM:
            require(one.recv(100) == TARGETS.secret.encode(), "somebody else answered")
        return f"talked to {address!r}"


@attack
def abstract_socket() -> str:
    """A name that needs no file, so that no mount hides it."""
    return _greet(f"\0{TARGETS.abstract_name}")


@attack
def pathname_socket() -> str:
    """A socket that everybody outside may write to."""
    return _greet(TARGETS.socket_path)


@attack
def pathname_socket_by_link() -> str:
    """The same through a link in a folder of our own."""
    link = tempfile.mkdtemp() + "/link"
    os.symlink(TARGETS.socket_path, link)
    return _greet(link)


@attack
def datagram_socket() -> str:
    """A datagram socket, as syslog has."""
    return _greet(TARGETS.datagram_path, socket.SOCK_DGRAM)


@attack
def datagram_by_socketpair() -> str:
    """One end of a pair may be pointed elsewhere; a filter on `socket` does not see it."""
    mine, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)

    def connect() -> str:
        mine.connect(TARGETS.datagram_path)
        mine.send(b"hello")
        return "connected a pair to a path"

    def send() -> str:
        mine.sendto(b"hello", TARGETS.datagram_path)
        return "sent from a pair to a path"

    return first_of(connect, send)


@attack
def agent_socket() -> str:
    """The ssh agent of whoever started us, where the environment says that it is."""
    path = os.environ.get("SSH_AUTH_SOCK")
    if not path:
        raise Held("the environment does not say")
    return _greet(path)


@attack
def well_known_sockets() -> str:
    """Services that hand out the machine."""
    paths = (
        "/run/docker.sock",
        "/var/run/docker.sock",
        "/run/containerd/containerd.sock",
        "/run/podman/podman.sock",
        "/run/dbus/system_bus_socket",
        "/run/systemd/private",
        "/run/systemd/journal/socket",
        "/run/snapd.socket",
        "/dev/log",
        "/tmp/.X11-unix/X0",
        "\0/tmp/.X11-unix/X0",
        f"/run/user/{os.getuid()}/bus",
        f"/run/user/{os.getuid()}/wayland-0",
        f"/run/user/{os.getuid()}/systemd/private",
    )

    def knock(path: str) -> Attack:
        def connect() -> str:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
                one.settimeout(PATIENCE_S)
                one.connect(path)
                return f"connected to {path!r}"

        return connect

    return first_of(*map(knock, paths))


@attack
def supervisor_socket() -> str:
    """The socket by which workers talk to their supervisor: forge one's frames."""
    return first_of(*(lambda path=path: _greet(path) for path in TARGETS.supervisor_sockets))
