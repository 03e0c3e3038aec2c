"""The last steps between a spawn and the first instruction of the program: prepare, probe, report, wait, exec.

The gate is our own code inside a sandbox that is already closed.  Its owner talks to it over one stream socket:

    owner → gate   the order: 8 bytes of length, then its records (see `order`); with it, at most eight descriptors in
                   which a process joins a control group by writing 0
    gate → owner   messages of listening sockets, when the order asks for any
    gate → owner   a report: lines `key value`, then an empty line; the kernel adds our credentials
    owner → gate   one byte: go.  End of file means that the owner is gone, or refuses
    gate → owner   the errno of an exec that failed; nothing when it worked

The report has a line `joined ERRNO` for each of those descriptors, with 0 for success; `failed ERRNO STEP` says at what
the gate failed.  `sandbox/native` holds the same in C, which starts in a hundredth of the time and is used where it was
built; the same tests hold both.  Only built-in and cheap modules are imported here: this is paid at every start.
"""

import _signal  # `signal` brings enum along, which costs more than all the rest
import _socket
import os
import sys

TYPE_CHECKING = False  # the typing module costs more than an interpreter's start
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

CHUNK_BYTES = 65536
EXIT_REFUSED = 125
"""The owner went away or said no."""

EXIT_NO_EXEC = 126
EINVAL = 22
ENOSYS = 38

FD_BYTES = 4
MAX_ENTRANCES = 8
"""Descriptors with an order: control groups have a hierarchy for each of three controllers, and one more."""

LISTENERS_BATCH = 200
"""Descriptors a message; the kernel takes 253 (SCM_MAX_FD)."""

BACKLOG = 128
"""Connections that wait for our owner to accept them."""

STATUS_FIELDS = ("NoNewPrivs", "Seccomp", "CapPrm", "CapEff", "Uid", "Gid")
NAMESPACES = ("mnt", "pid", "net", "ipc", "uts", "user", "cgroup")

AF_PACKET = 17
AF_VSOCK = 40

_FAMILIES = (("inet", _socket.AF_INET), ("unix", _socket.AF_UNIX), ("packet", AF_PACKET), ("vsock", AF_VSOCK))


def main(control: "str | int", *streams: str) -> None:
    """Never returns.  Of descriptors, `streams` become the first of the program's standard streams."""
    control_fd = int(control)
    for number, fd in enumerate(streams):
        os.dup2(int(fd), number)
    os.set_inheritable(control_fd, False)  # noqa: FBT003 - takes no keyword
    os.setsid()  # so that a signal to the group of the program reaches its children too, and nobody else
    owner = _socket.socket(fileno=control_fd)
    order, entrances = _read_order(owner)
    joined = [_join(fd) for fd in entrances]
    close_others(control_fd)
    step = ""
    try:
        for step in _prepare(order, owner):  # noqa: B007 - the last one is what failed
            pass
        report = [("joined", error) for error in joined] + observe(order["probes"])
    except OSError as error:
        report = [("failed", f"{error.errno} {step}")]
    owner.sendall("".join(f"{key} {_one_line(value)}\n" for key, value in report).encode("utf-8", "replace") + b"\n")
    if _read(owner, 1) != b"g":
        os._exit(EXIT_REFUSED)
    # Python ignores two of these, and our owner may ignore the third; no program expects to be born deaf to them.
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGINT):
        _signal.signal(number, _signal.SIG_DFL)
    try:
        os.execve(order["program"], order["argv"], order["env"])  # noqa: S606 - the whole point
    except OSError as error:
        owner.sendall(b"%d" % (error.errno or EINVAL))
    os._exit(EXIT_NO_EXEC)


def _read_order(control: "_socket.socket") -> "tuple[dict[str, Any], list[int]]":
    """The order, and what came with it."""
    import order

    head, ancillary, _, _ = control.recvmsg(8, _socket.CMSG_SPACE(MAX_ENTRANCES * FD_BYTES))
    entrances = []
    for level, kind, passed in ancillary:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            whole = range(0, len(passed) - FD_BYTES + 1, FD_BYTES)
            entrances += [int.from_bytes(passed[at : at + FD_BYTES], sys.byteorder) for at in whole]
    size = int.from_bytes(head + _read(control, 8 - len(head)), "big")
    if size > order.MAX_BYTES:
        os._exit(EXIT_REFUSED)
    data = _read(control, size)
    try:
        return order.decode(data), entrances
    except ValueError:
        os._exit(EXIT_REFUSED)


def _join(entrance: int) -> int:
    """Join a control group; 0, or why not.

    A process that moves itself waits for nothing, where its owner would wait for all processors to have seen it.
    """
    try:
        os.write(entrance, b"0")
    except OSError as error:
        return error.errno or EINVAL
    return 0


def _read(control: "_socket.socket", size: int) -> bytes:
    data = b""
    while len(data) < size:
        try:
            piece = control.recv(min(CHUNK_BYTES, size - len(data)))
        except ConnectionResetError:
            piece = b""  # gone, without having read all that we said
        if not piece:
            os._exit(EXIT_REFUSED)
        data += piece
    return data


def close_others(kept: int) -> None:
    """Close every descriptor but the standard streams and one more."""
    os.closerange(3, kept)
    os.closerange(kept + 1, 4096)
    try:
        left = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return  # no /proc, as on macOS: few processes have had more
    for fd in left:
        if fd > 2 and fd != kept:
            try:
                os.close(fd)
            except OSError:
                pass  # the listing's own


def _prepare(order: "dict[str, Any]", control: "_socket.socket") -> "Iterator[str]":
    """Carry out the order; each step is named before it is taken."""
    import resource

    raise_oom_score(order["oom_score"])
    if order["confine"] is not None or order["identity"] is not None or order["set_apart"]:
        import kernel

        yield "load the C library"
        kernel.library()  # now: our interpreter can be out of reach for whom we become
    yield from open_listeners(control, order["listen"])
    yield "open files"
    if order["open_files"]:
        # Our owner may have raised its own; a limit of the policy comes after.
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard == resource.RLIM_INFINITY or order["open_files"] <= hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (order["open_files"], hard))
    for number, value in order["rlimits"]:
        yield f"limit {number}"
        # At the hard limit on processor time the kernel kills; only at the soft one it says why.
        wanted = value + 1 if number == resource.RLIMIT_CPU else value
        hard = resource.getrlimit(number)[1]
        hard = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(number, (min(value, hard), hard))
    if order["identity"] is not None:
        uid, gid = order["identity"]
        yield f"become uid {uid}"
        try:
            os.setgroups([])
        except PermissionError:
            if uid != 0:
                raise
            # A root that may not even do this is confined to being root, with the groups that it was given.
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        yield "give up capabilities"
        if uid == 0:
            kernel.forbid_new_privileges()
            kernel.lock_securebits()
        kernel.clear_capabilities()
    os.umask(0o022)
    yield f"enter {order['cwd']}"
    os.chdir(order["cwd"])
    if order["set_apart"]:
        yield "Landlock"
        kernel.set_apart()
    if order["confine"] is not None:
        yield "forbid new privileges"
        kernel.die_with_parent()  # again: the kernel forgets it when a process changes its user
        kernel.forbid_new_privileges()
        if order["confine"]["landlock"] is not None:
            yield "Landlock"
            kernel.restrict(**order["confine"]["landlock"])
        if order["confine"]["own"]:
            yield "start a broker"  # only the compiled gate has a broker
            raise OSError(ENOSYS, "")
        if order["confine"]["seccomp"]:
            yield "seccomp"
            kernel.load_seccomp(order["confine"]["seccomp"])


def open_listeners(control: "_socket.socket", pairs: "list[tuple[str, int]]") -> "Iterator[str]":
    """Listen on each `(address, port)` where the program will dial, send all over `control` in order, a byte a batch.

    A listening socket belongs to the network namespace that it was made in, whoever holds it: our owner outside accepts
    on it, and nothing of ours stays inside.  Yields the name of each step before it is taken.

    Raises:
        OSError: an address that cannot be listened on; ports below `net.ipv4.ip_unprivileged_port_start` need
            CAP_NET_BIND_SERVICE in the user namespace that owns the network.
    """
    listeners = []
    for address, port in pairs:
        yield f"listen on {address}:{port}"
        family = _socket.AF_INET6 if ":" in address else _socket.AF_INET
        listener = _socket.socket(family, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        listeners.append(listener)
        listener.bind((address, port))
        listener.listen(BACKLOG)
    yield "hand over what is listened on"
    for start in range(0, len(listeners), LISTENERS_BATCH):
        batch = b"".join(
            one.fileno().to_bytes(FD_BYTES, sys.byteorder) for one in listeners[start : start + LISTENERS_BATCH]
        )
        control.sendmsg([b"l"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, batch)])
    for listener in listeners:
        listener.close()


def raise_oom_score(score: "int | str | None") -> None:
    """Have this process killed before its owner when memory runs out.

    Before a change of user, a read-only /proc and Landlock, each of which would close the file.
    """
    if score is None:
        return
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(str(score))
    except OSError:
        pass  # no /proc in here, or a container that forbids it


def _one_line(value: object) -> str:
    return str(value).replace("\n", " ")


def observe(task: "dict[str, Any]") -> list[tuple[str, object]]:
    """What can be seen and done from inside, as (key, value) pairs, just before the program starts; the owner judges.

    Each probe tries something that the program could try.  Nothing is changed: what is opened is never written.

    Args:
        task: `owner` a process id outside, `secrets` paths that must not open, `fixed` directories that must not take
            a new file.
    """
    import resource

    facts: list[tuple[str, object]] = [("pid", os.getpid())]
    facts += _status()
    facts += [(f"ns.{name}", _link(f"/proc/self/ns/{name}")) for name in NAMESPACES]
    facts += [("opened", path) for path in task["secrets"] if _opens(path)]
    facts += [("writable", path) for path in task["fixed"] if os.access(path, os.W_OK)]
    facts.append(("signals_owner", int(_may_signal(task["owner"]))))
    facts.append(("holds_first", int(_opens(f"/proc/{os.getppid()}/mem", os.O_WRONLY))))
    facts.append(("sees_owner", int(os.path.exists(f"/proc/{task['owner']}"))))
    facts.append(("changes_metadata", int(_changes_metadata())))
    facts += [(f"socket.{name}", int(_has_socket(family))) for name, family in _FAMILIES]
    facts += [(f"rlimit.{number}", resource.getrlimit(number)[0]) for number in task["rlimits"]]
    return facts


def _status() -> list[tuple[str, object]]:
    try:
        with open("/proc/self/status") as status:
            lines = status.read().split("\n")
    except OSError:
        return []
    pairs = (line.partition(":\t") for line in lines)
    return [(f"status.{key}", value.split("\t")[0]) for key, _, value in pairs if key in STATUS_FIELDS]


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _opens(path: str, flags: int = os.O_RDONLY | os.O_NONBLOCK) -> bool:
    try:
        os.close(os.open(path, flags))
    except OSError:
        return False
    return True


def _may_signal(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _changes_metadata() -> bool:
    """Return whether setting the times of a file outside, without a change, succeeds: only a filter refuses that."""
    import kernel

    try:
        kernel.leave_times("/")
    except OSError:
        return False
    return True


def _has_socket(family: int) -> bool:
    try:
        _socket.socket(family, _socket.SOCK_DGRAM).close()
    except OSError:
        return False
    return True
