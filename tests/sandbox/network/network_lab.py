"""A world in namespaces of its own: a host with services, behind it an internet, and a sandbox that gets an uplink.

`python network_lab.py HELPER PYTHON [UID]` needs root, changes nothing outside its namespaces, and prints, as lines of
JSON, each scene with its outcome.  The world's addresses are documentation's (open, as the internet is) and what a LAN
or a cloud has.
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

PUBLIC: Final = "198.51.100.7"
HOST: Final = "203.0.113.2"
NEARBY: Final = ("10.9.9.9", "172.16.3.3", "192.168.5.5", "169.254.169.254", "100.64.0.1", "168.63.129.16")
PLAYED: Final = ("10.0.2.2", "10.0.2.3")
"""What a helper plays, and what a virtual machine's own host has: pasta reaches the real one too."""

GROUP: Final = "239.255.255.250"  # where all of a LAN listen who want to be found
STUB: Final = "127.0.0.53"  # where the host's resolver listens, as systemd's does
PORT: Final = 80
ABSTRACT: Final = "\0quarterdeck-lab"
TRY_S: Final = 2.0  # for what nobody should answer
ANSWER_S: Final = 30.0  # for what somebody must answer; on a busy machine, datagrams are lost
PAYLOAD: Final = """
import json, socket, subprocess, sys, threading, time
found = {}
def attempt(key, family, kind, device, address):
    one = socket.socket(family, kind)
    patience = %(answer_s)r if address in %(reached)r else %(try_s)r
    until = time.monotonic() + patience
    one.settimeout(patience)
    try:
        if device:
            one.setsockopt(socket.SOL_SOCKET, 25, device)
        if kind == socket.SOCK_STREAM:
            one.connect(address)
            found[key] = one.recv(100).decode()
        one.settimeout(0.4)
        while key not in found:
            one.sendto(b"?", address)
            try:
                found[key] = one.recv(100).decode()
            except TimeoutError:
                if time.monotonic() > until:
                    raise
    except OSError as error:
        found[key] = None
    one.close()
tcp, udp = socket.SOCK_STREAM, socket.SOCK_DGRAM
tries = [("resolver", socket.AF_INET, udp, b"", ("10.0.2.3", 53)), ("abstract", socket.AF_UNIX, tcp, b"", %(abstract)r)]
for a in %(addresses)r:
    for d in b"", b"tap0":
        tries.append((f"{a} {d.decode()}".strip(), socket.AF_INET, tcp, d, (a, 80)))
        tries.append((f"udp {a} {d.decode()}".strip(), socket.AF_INET, udp, d, (a, 53)))
threads = [threading.Thread(target=attempt, args=one) for one in tries]
for one in threads: one.start()
for one in threads: one.join()
ip = %(ip)r
changes = [
    ["route", "del", "unreachable", "10.0.0.0/8"],
    ["neighbour", "add", "10.9.9.9", "lladdr", "52:55:0a:00:02:02", "dev", "tap0"],
]
found["changed"] = [word for word in changes if subprocess.run([ip, *word], stderr=subprocess.DEVNULL).returncode == 0]
print(json.dumps(found))
"""


def ip(*words: str) -> None:
    """Run one command of iproute2."""
    subprocess.run(["ip", *words], check=True)


def serve(kind: socket.SocketKind, address: str, port: int, answer: bytes) -> None:
    """Answer everybody, for as long as this process lives."""
    one = socket.socket(socket.AF_INET, kind)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind((address, port))
    if address == GROUP:
        one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + socket.inet_aton(HOST))
    if kind == socket.SOCK_STREAM:
        one.listen(64)

    def answer_all() -> None:
        while True:
            if kind == socket.SOCK_STREAM:
                accepted, _ = one.accept()
                accepted.sendall(answer)
                accepted.close()
            else:
                _, peer = one.recvfrom(1500)
                one.sendto(answer, peer)

    threading.Thread(target=answer_all, daemon=True).start()


def internet() -> None:
    """Be the other side of the host's one cable; tells that the services run, and ends with its standard input."""
    sys.stdin.readline()
    for words in (
        ("link", "set", "lo", "up"),
        ("address", "add", "203.0.113.1/24", "dev", "far"),
        ("link", "set", "far", "up"),
    ):
        ip(*words)
    for address in (PUBLIC, *NEARBY, *PLAYED):
        ip("address", "add", f"{address}/32", "dev", "far")
        serve(socket.SOCK_STREAM, address, PORT, b"world")
        serve(socket.SOCK_DGRAM, address, 53, b"world")
    print("ready", flush=True)
    sys.stdin.read()


def build_world() -> subprocess.Popen[str]:
    """Make the host out of our own namespaces, and the internet out of another's; the process is the internet."""
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    # Ordinary users may open it nearly everywhere, as its driver asks for; not on every machine of a test.
    subprocess.run(["mount", "-t", "tmpfs", "-o", "dev", "lab", "/mnt"], check=True)
    os.mknod("/mnt/tun", 0o666 | 0o020000, os.makedev(10, 200))
    os.chmod("/mnt/tun", 0o666)
    Path("/mnt/resolv.conf").write_text(f"nameserver {STUB}\n")
    for source, target in (("tun", "/dev/net/tun"), ("resolv.conf", os.path.realpath("/etc/resolv.conf"))):
        subprocess.run(["mount", "--bind", f"/mnt/{source}", target], check=True)
    ip("link", "set", "lo", "up")
    far = subprocess.Popen(
        ["unshare", "--net", sys.executable, __file__, "internet"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert far.stdin is not None
    assert far.stdout is not None
    while os.readlink(f"/proc/{far.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
        os.sched_yield()
    ip("link", "add", "near", "type", "veth", "peer", "name", "far", "netns", str(far.pid))
    ip("address", "add", f"{HOST}/24", "dev", "near")
    ip("link", "set", "near", "up")
    ip("route", "add", "default", "via", "203.0.113.1")
    far.stdin.write("\n")
    far.stdin.flush()
    far.stdout.readline()
    serve(socket.SOCK_STREAM, "0.0.0.0", PORT, b"host")
    serve(socket.SOCK_DGRAM, STUB, 53, b"stub")
    serve(socket.SOCK_DGRAM, GROUP, 53, b"group")
    return far


def machine_of(helper: str) -> Any:
    from quarterdeck_sandbox.policy.machine import Bubblewrap, Machine

    bubblewrap = Bubblewrap(path=os.environ["LAB_BWRAP"], works=True, makes_network=True)
    return Machine(
        "linux", euid=os.geteuid(), bubblewrap=bubblewrap, gate=os.environ["LAB_GATE"], **{helper: shutil.which(helper)}
    )


class Sandbox:
    """Bubblewrap as it is started in earnest, as far as the network is concerned."""

    def __init__(self, *command: str) -> None:
        info, info_w = os.pipe()
        block, self.block_w = os.pipe()
        spaces = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--cap-drop", "ALL"]
        if os.geteuid() == 0:
            spaces += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
            command = (shutil.which("setpriv") or "", "--reuid=61200", "--regid=61200", "--clear-groups", *command)
        else:
            spaces += ["--unshare-user", "--disable-userns"]
        mounts = ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--die-with-parent"]
        self.process = subprocess.Popen(
            [os.environ["LAB_BWRAP"], *spaces, *mounts, "--info-fd", str(info_w), "--block-fd", str(block), *command],
            pass_fds=(info_w, block),
            stdout=subprocess.PIPE,
            env={"PATH": os.environ["PATH"]},
        )
        os.close(info_w)
        os.close(block)
        said = ""
        while "}" not in said:
            said += os.read(info, 1000).decode()
        os.close(info)
        self.pid: int = json.loads(said)["child-pid"]

    def run(self) -> bytes:
        os.write(self.block_w, b"g")
        os.close(self.block_w)
        return self.process.communicate()[0]

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.process.communicate()
        os.close(self.block_w)


def children() -> list[str]:
    """Names of the processes that this one has started, and those have."""
    import psutil

    return sorted(child.name() for child in psutil.Process().children(recursive=True) if child.status() != "zombie")


async def reach(helper: str) -> dict[str, Any]:
    """What a program inside reaches, and what is left when its uplink is closed."""
    from quarterdeck_sandbox.network import uplink

    addresses = (PUBLIC, HOST, "127.0.0.1", GROUP, *PLAYED, *NEARBY)
    values = {
        "try_s": TRY_S,
        "answer_s": ANSWER_S,
        "reached": ((PUBLIC, 80), (PUBLIC, 53), ("10.0.2.3", 53)),
        "addresses": addresses,
        "abstract": ABSTRACT,
        "ip": shutil.which("ip"),
    }
    code = PAYLOAD % values
    sandbox = Sandbox(os.environ["LAB_PYTHON"], "-I", "-S", "-c", code)
    connected = await uplink.connect(machine_of(helper), sandbox.pid)
    helpers = children()
    found: dict[str, Any] = json.loads(await asyncio.to_thread(sandbox.run))
    await connected.close()
    return {"found": found, "helpers": helpers, "left": children()}


async def lose_the_owner(helper: str) -> dict[str, Any]:
    """Whether the helper outlives the process that started it, which is killed."""
    return await _lose_the_owner(helper, is_stopped=False)


async def lose_the_owner_when_stopped(helper: str) -> dict[str, Any]:
    """The same when the helper is stopped, and hears of nothing."""
    return await _lose_the_owner(helper, is_stopped=True)


async def _lose_the_owner(helper: str, *, is_stopped: bool) -> dict[str, Any]:
    process = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs on this loop
        [sys.executable, __file__, "own", helper], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    pids = json.loads(process.stdout.readline())
    for pid in pids if is_stopped else ():
        os.kill(pid, signal.SIGSTOP)
    process.kill()
    process.wait()
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        import anyio

        with anyio.fail_after(20):
            await anyio.wait_readable(fd)
        os.close(fd)
    return {"helpers": len(pids)}


async def own(helper: str) -> None:
    """Own an uplink, say which processes are its, and wait for the end."""
    import psutil

    from quarterdeck_sandbox.network import uplink

    sandbox = Sandbox("/bin/true")
    await uplink.connect(machine_of(helper), sandbox.pid)
    mine = {sandbox.process.pid, sandbox.pid}
    print(json.dumps([one.pid for one in psutil.Process().children(recursive=True) if one.pid not in mine]), flush=True)
    signal.pause()


async def lose_the_helper(helper: str) -> dict[str, Any]:
    """What an uplink says when its helper is killed, and when it is stopped; what is left."""
    import anyio

    from quarterdeck_sandbox.network import uplink

    uplink.LOOK_S = 0.02  # type: ignore[misc]
    whys = []
    for number in (signal.SIGKILL, signal.SIGSTOP):
        sandbox = Sandbox("/bin/true")
        connected = await uplink.connect(machine_of(helper), sandbox.pid)
        loss = asyncio.ensure_future(connected.lost())
        await anyio.sleep(10 * uplink.LOOK_S)
        assert not loss.done()
        os.kill(connected.pid, number)
        with anyio.fail_after(20):
            whys.append(await loss)
        await connected.close()
        sandbox.kill()
    return {"whys": whys, "left": children()}


async def fail(helper: str) -> dict[str, Any]:
    """What is said of helpers that cannot, and what they leave."""
    from msgspec.structs import replace

    from quarterdeck_sandbox.network import uplink
    from quarterdeck_sandbox.program.launch import LaunchError

    whys = []
    for path in ("/bin/false", "/nonexistent"):
        sandbox = Sandbox("/bin/true")
        try:
            await uplink.connect(replace(machine_of(helper), **{helper: path}), sandbox.pid)
        except (LaunchError, OSError) as error:
            whys.append(str(error))
        sandbox.kill()
    return {"whys": whys, "left": children()}


async def ask(helper: str) -> dict[str, Any]:
    """What the self-test says of a helper that works and of one that does not."""
    from msgspec.structs import replace

    from quarterdeck_sandbox.network import uplink

    machine = machine_of(helper)
    works = await asyncio.to_thread(uplink.why_not, machine)
    broken = await asyncio.to_thread(uplink.why_not, replace(machine, **{helper: "/bin/false"}))
    return {"works": works, "broken": broken, "left": children()}


SCENES: Final = (reach, lose_the_owner, lose_the_owner_when_stopped, lose_the_helper, fail, ask)


def play(scene: Callable[[str], Coroutine[None, None, dict[str, Any]]], helper: str) -> None:
    """Play one in a process of its own, whose children are nobody else's."""
    from quarterdeck_sandbox.network import uplink  # noqa: F401 - once for all scenes

    if pid := os.fork():
        os.waitpid(pid, 0)
        return
    try:
        print(json.dumps([scene.__name__, asyncio.run(scene(helper))]), flush=True)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def main() -> None:
    match sys.argv[1:]:
        case ["internet"]:
            internet()
        case ["own", helper]:
            asyncio.run(own(helper))
        case ["here", helper]:
            for scene in SCENES:
                play(scene, helper)
        case [helper, python, *identity]:
            far = build_world()
            abstract = socket.socket(socket.AF_UNIX)
            abstract.bind(ABSTRACT)
            abstract.listen()
            uid = int(identity[0]) if identity else None
            who: dict[str, Any] = {"user": uid, "group": uid, "extra_groups": []} if uid else {}
            env = {**os.environ, "LAB_PYTHON": python}
            status = subprocess.call([python if uid else sys.executable, __file__, "here", helper], env=env, **who)
            far.communicate()
            sys.exit(status)


if __name__ == "__main__":
    main()
