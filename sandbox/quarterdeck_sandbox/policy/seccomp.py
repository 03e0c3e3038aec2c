"""Which system calls a confined process may make, and their filter as the classic BPF that the kernel runs.  Pure.

A deny-list: what is not named here is allowed.  The denied are interfaces that no server needs and that have led out
of sandboxes: mounts and namespaces, tracing, other processes' memory and scheduling, kernel modules, keys, bpf,
io_uring, performance counters, clocks, NUMA placement, and every family of sockets but those that the network mode
allows.  Some calls are judged by their arguments.  Under Landlock, a broker (`native/broker.h`) judges changes of a
file's mode, owner and times, or the filter refuses them.

The program, in order: a foreign architecture (a 32-bit call, x32) kills; `clone3` does not exist, because its flags
lie in memory where no filter sees them, and every libc falls back to `clone`; denied calls fail with EPERM; calls that
set attributes fail with EOPNOTSUPP where attributes are closed, as on a filesystem without any; calls that are judged
by their arguments each have a block of their own; the rest is allowed.  On kernels since 5.11 an always
allowed call costs nothing: the verdict is kept in a bitmap.

Sources: `arch/x86/entry/syscalls/syscall_64.tbl` and `include/uapi/asm-generic/unistd.h` of Linux; a test compares them
with libseccomp's.  What an architecture lacks is absent from its table.
"""

import struct
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Final

import msgspec


class Metadata(StrEnum):
    """Changes of a file's mode, owner and times."""

    ALLOWED = "allowed"  # as far as the kernel allows them
    ASKED = "asked"  # the broker judges each change; attributes of files are closed
    CLOSED = "closed"  # refused for every file, as are changes of attributes


class Filter(msgspec.Struct, frozen=True):
    """What a filter leaves open."""

    inet: bool  # sockets of IPv4 and IPv6, and the routing netlink by which libc lists interfaces
    unix: bool  # Unix sockets.  Connected stream pairs are always there: no path can be reached through them.
    # Memory that no process is charged for (memfd, System V, message queues); only under a control group
    shared_memory: bool
    reaches_out: bool  # knobs on other processes, and IPC objects with names; only where namespaces keep them inside
    truncates: bool = True  # cutting a file off by its path, which early versions of Landlock do not judge
    sets_ids: bool = True  # files that run as their owner; never where that owner is root
    # Changes of a file's mode, owner and times.  Namespaces keep them inside, Landlock does not.
    metadata: Metadata = Metadata.ALLOWED


class Check(msgspec.Struct, frozen=True):
    """Whether one argument, masked, is among `values`; not among them if `negated`.

    Only the low 32 bits count.  Every argument judged here is an `int`, a `pid_t` or an `unsigned int` to the kernel
    (`clone` cuts its flags to as many), which ignores the high half: so must a filter, or it can be fooled with it.
    """

    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFF_FFFF
    negated: bool = False


Rule = tuple[tuple[Check, ...], ...]
"""Allowed if all checks of one alternative hold; without alternatives, never."""

_ALWAYS: Final[Rule] = ((),)

DENIED: Final[dict[str, tuple[int, int | None]]] = {
    "acct": (163, 89), "add_key": (248, 217), "adjtimex": (159, 171), "bpf": (321, 280), "chroot": (161, 51),
    "clock_adjtime": (305, 266), "clock_settime": (227, 112), "delete_module": (176, 106), "fanotify_init": (300, 262),
    "finit_module": (313, 273), "fsconfig": (431, 431), "fsmount": (432, 432), "fsopen": (430, 430),
    "fspick": (433, 433), "get_mempolicy": (239, 236), "init_module": (175, 105), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "io_uring_setup": (425, 425), "ioperm": (173, None), "iopl": (172, None),
    "kcmp": (312, 272), "kexec_file_load": (320, 294), "kexec_load": (246, 104), "keyctl": (250, 219),
    "lookup_dcookie": (212, 18), "mbind": (237, 235), "memfd_secret": (447, 447), "migrate_pages": (256, 238),
    "modify_ldt": (154, None), "mount": (165, 40), "mount_setattr": (442, 442), "move_mount": (429, 429),
    "move_pages": (279, 239), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "open_tree": (428, 428),
    "open_tree_attr": (467, 467), "perf_event_open": (298, 241), "pidfd_getfd": (438, 438), "pivot_root": (155, 41),
    "process_madvise": (440, 440), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "ptrace": (101, 117), "quotactl": (179, 60), "quotactl_fd": (443, 443), "reboot": (169, 142),
    "request_key": (249, 218), "set_mempolicy": (238, 237), "set_mempolicy_home_node": (450, 450),
    "setdomainname": (171, 162), "sethostname": (170, 161), "setns": (308, 268), "settimeofday": (164, 170),
    "swapoff": (168, 225), "swapon": (167, 224), "sysfs": (139, None), "syslog": (103, 116), "umount2": (166, 39),
    "unshare": (272, 97), "uselib": (134, None), "userfaultfd": (323, 282), "ustat": (136, None), "vhangup": (153, 58),
}  # fmt: skip
"""Never allowed: name to its numbers on x86-64 and aarch64."""

CHANGES_METADATA: Final[dict[str, tuple[int, int | None]]] = {
    "chmod": (90, None), "chown": (92, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "fchown": (93, 55), "fchownat": (260, 54), "futimesat": (261, None), "lchown": (94, None), "utime": (132, None),
    "utimensat": (280, 88), "utimes": (235, None),
}  # fmt: skip
"""Calls that change a file's mode, owner or times; numbers likewise.  The broker has the same list."""

SETS_ATTRIBUTES: Final[dict[str, tuple[int, int | None]]] = {
    "file_setattr": (469, 469), "fremovexattr": (199, 16), "fsetxattr": (190, 7), "lremovexattr": (198, 15),
    "lsetxattr": (189, 6), "removexattr": (197, 14), "removexattrat": (466, 466), "setxattr": (188, 5),
    "setxattrat": (463, 463),
}  # fmt: skip
"""Calls that set extended attributes and flags of inodes; numbers likewise."""

_JUDGED: Final[dict[str, tuple[int, int | None]]] = CHANGES_METADATA | SETS_ATTRIBUTES | {
    "clone": (56, 220), "clone3": (435, 435), "creat": (85, None), "ioctl": (16, 29), "ioprio_set": (251, 30),
    "kill": (62, 129), "memfd_create": (319, 279), "mknod": (133, None), "mknodat": (259, 33), "mq_open": (240, 180),
    "mq_unlink": (241, 181), "msgctl": (71, 187), "msgget": (68, 186), "msgrcv": (70, 188), "msgsnd": (69, 189),
    "open": (2, None), "openat": (257, 56), "openat2": (437, 437), "personality": (135, 92), "prlimit64": (302, 261),
    "process_mrelease": (448, 448), "sched_setaffinity": (203, 122), "sched_setattr": (314, 274),
    "sched_setparam": (142, 118), "sched_setscheduler": (144, 119), "semctl": (66, 191), "semget": (64, 190),
    "semop": (65, 193), "semtimedop": (220, 192), "setpriority": (141, 140), "shmat": (30, 196), "shmctl": (31, 195),
    "shmget": (29, 194), "socket": (41, 198), "socketpair": (53, 199), "truncate": (76, 45),
}  # fmt: skip
"""Allowed or not by a filter's attributes or a call's arguments; numbers likewise."""

NUMBERS: Final[Mapping[str, Mapping[str, int]]] = {
    architecture: {name: found for name, pair in (DENIED | _JUDGED).items() if (found := pair[index]) is not None}
    for index, architecture in enumerate(("x86_64", "aarch64"))
}
"""Architecture, as `uname -m` says it, to name to number."""

UNCHARGED: Final = frozenset({"memfd_create", "mq_open", "shmat", "shmctl", "shmget"})
"""Memory beyond every rlimit, and invisible in any process's own figures."""

NAMED_IPC: Final = frozenset(
    {
        "mq_open", "mq_unlink", "msgctl", "msgget", "msgrcv", "msgsnd",
        "semctl", "semget", "semop", "semtimedop", "shmat", "shmctl", "shmget",
    }
)  # fmt: skip
"""Objects that all processes of a user share, and that outlive those who made them."""

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16

NETLINK_ROUTE = 0

SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET = 1, 2, 5

SOCK_TYPE_MASK = 0xF

INET_PROTOCOLS: Final = (0, 1, 6, 17, 58)
"""Default, ICMP's echo, TCP, UDP, ICMPv6's.  Not MPTCP (262): Landlock's TCP rules do not see it (landlock-lsm#54)."""

NAMESPACE_FLAGS: Final = 0x7E02_0000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.  `clone` reads NEWTIME's bit as part of a signal."""

CHANGES_OF_INODES: Final = (
    0x401C_5820, 0x4008_7602, 0x4004_7602, 0x4004_7211,  # FS_IOC_FSSETXATTR, FS_IOC_SETVERSION (and 32 bits), FAT's
    0x5000_9401, 0x5000_940E, 0x5000_940F, 0x5000_9417, 0x5000_9418, 0x5000_943F, 0x4008_941A, 0xC0C8_9425, 0xC0C0_9425,
)  # fmt: skip
"""Requests to a descriptor that is open only for reading.  The last nine make, remove and mark subvolumes of btrfs,
which Landlock does not see."""

OF_FILESYSTEMS: Final = 0x6600
"""The type `f` of requests: flags and versions of inodes, encryption, verity (Documentation/userspace-api/ioctl)."""

TYPE_OF_REQUEST: Final = 0xFF00

READS_OF_FILESYSTEMS: Final = (0x8008_6601, 0x8004_6601, 0xC020_660B)
"""FS_IOC_GETFLAGS (and 32 bits), FS_IOC_FIEMAP."""

TERMINAL_INJECTIONS: Final = (0x5412, 0x541C, 0x5423)
"""TIOCSTI, TIOCLINUX (CVE-2017-5226 and kin: keys typed into the terminal that we came from), TIOCSETD."""

PERSONALITIES: Final = (0, 0x8, 0x2_0000, 0x2_0008, 0xFFFF_FFFF)
"""Linux, 32 bits, old version numbers, both, and asking; not READ_IMPLIES_EXEC or a fixed address space."""

SET_IDS: Final = 0o6000  # S_ISUID and S_ISGID of a mode
O_CREATES: Final = 0o2000_0100  # O_CREAT and O_TMPFILE: without them the mode of an open means nothing

MISSING_WITHOUT_IDS: Final = "openat2"
"""Its mode lies in memory, where no filter sees it: it is as if the kernel had no such call."""

EVERYBODY: Final = 0xFFFF_FFFF  # -1 as a process id
IOPRIO_WHO_PROCESS: Final = 1
_SELF: Final = (0,)

_SETS_NO_IDS: Final[Mapping[str, Rule]] = {
    **{
        name: ((Check(argument, _SELF, SET_IDS),),)
        for name, argument in {"chmod": 1, "creat": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2}.items()
    },
    **{name: ((Check(argument, _SELF, SET_IDS),),) for name, argument in {"mknod": 1, "mknodat": 2}.items()},
    "open": ((Check(1, _SELF, O_CREATES),), (Check(2, _SELF, SET_IDS),)),
    "openat": ((Check(2, _SELF, O_CREATES),), (Check(3, _SELF, SET_IDS),)),
}
"""As systemd's RestrictSUIDSGID does it."""


def make_rules(wanted: Filter) -> Mapping[str, Rule]:
    """Return the rule of every judged call by its name; `clone3` is apart."""
    rules: dict[str, Rule] = dict.fromkeys(DENIED, ())
    rules |= {
        "clone": ((Check(0, (0,), NAMESPACE_FLAGS),),),
        "ioctl": _requests(wanted),
        "personality": ((Check(0, PERSONALITIES),),),
        # Also where a PID namespace keeps it inside: the first process there is ours, and under a user of its own.
        "prlimit64": ((Check(0, _SELF),),),
        "socket": _sockets(wanted),
        "socketpair": ((Check(0, (AF_UNIX,)), *_pair_types(wanted)),),
    }
    if not wanted.truncates:
        rules["truncate"] = ()
    if not wanted.sets_ids:
        rules |= _SETS_NO_IDS
    match wanted.metadata:
        case Metadata.ASKED:
            rules |= {name: rules.get(name, _ALWAYS) for name in CHANGES_METADATA}
        case Metadata.CLOSED:
            rules |= dict.fromkeys(CHANGES_METADATA, ())
    if wanted.metadata is not Metadata.ALLOWED:
        rules |= dict.fromkeys(SETS_ATTRIBUTES, ())
    if not wanted.shared_memory:
        rules |= dict.fromkeys(UNCHARGED, ())
    if not wanted.reaches_out:
        rules |= dict.fromkeys(NAMED_IPC, ())
        rules |= {
            "ioprio_set": ((Check(0, (IOPRIO_WHO_PROCESS,)), Check(1, _SELF)),),
            "kill": ((Check(0, (EVERYBODY,), negated=True),),),
            "process_mrelease": (),
            "sched_setaffinity": ((Check(0, _SELF),),),
            "sched_setattr": ((Check(0, _SELF),),),
            "sched_setparam": ((Check(0, _SELF),),),
            "sched_setscheduler": ((Check(0, _SELF),),),
            "setpriority": ((Check(0, _SELF), Check(1, _SELF)),),
        }
    return rules


def _requests(wanted: Filter) -> Rule:
    if wanted.metadata is Metadata.ALLOWED:
        return ((Check(1, TERMINAL_INJECTIONS, negated=True),),)
    others = Check(1, (OF_FILESYSTEMS,), TYPE_OF_REQUEST, negated=True)
    closed = Check(1, (*TERMINAL_INJECTIONS, *CHANGES_OF_INODES), negated=True)
    return (others, closed), (Check(1, READS_OF_FILESYSTEMS),)


def _sockets(wanted: Filter) -> Rule:
    rule: Rule = ()
    if wanted.unix:
        rule += ((Check(0, (AF_UNIX,)),),)
    if wanted.inet:
        rule += (
            (
                Check(0, (AF_INET, AF_INET6)),
                Check(1, (SOCK_STREAM, SOCK_DGRAM), SOCK_TYPE_MASK),
                Check(2, INET_PROTOCOLS),
            ),
            (Check(0, (AF_NETLINK,)), Check(2, (NETLINK_ROUTE,))),
        )
    return rule


def _pair_types(wanted: Filter) -> tuple[Check, ...]:
    # One end of a datagram pair can be connected anew, to any path; the kernel makes a raw one a datagram pair too.
    return () if wanted.unix else (Check(1, (SOCK_STREAM, SOCK_SEQPACKET), SOCK_TYPE_MASK),)


ARCHITECTURES: Final = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
"""What can be compiled for, as `uname -m` says it, and as `seccomp_data.arch` does."""

SECCOMP: Final = {"x86_64": 317, "aarch64": 277}
"""The number of the call `seccomp`, which loads a filter that asks."""

X32_BIT: Final = 0x4000_0000
NO_CALL: Final = 0xFFFF_FFFF  # -1, which the kernel answers with ENOSYS itself; it has the x32 bit set
LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
AND: Final = 0x54  # BPF_ALU | BPF_AND | BPF_K
JUMP_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
JUMP_GREATER_EQUAL: Final = 0x35  # BPF_JMP | BPF_JGE | BPF_K
RETURN: Final = 0x06  # BPF_RET | BPF_K
RET_ALLOW: Final = 0x7FFF_0000
RET_USER_NOTIF: Final = 0x7FC0_0000
RET_ERRNO: Final = 0x0005_0000
RET_KILL_PROCESS: Final = 0x8000_0000
EPERM: Final = 1
ENOSYS: Final = 38
EOPNOTSUPP: Final = 95
NUMBER_AT: Final = 0  # offsets in struct seccomp_data; both architectures are little endian
ARCHITECTURE_AT: Final = 4
ARGUMENTS_AT: Final = 16
_NEXT: Final = ""  # the label of the instruction that follows


@cache
def compile_filter(filter: Filter, architecture: str) -> bytes:  # noqa: A002 - the kernel's word for it
    """Compile an array of `struct sock_filter`, for `bwrap --seccomp` or `prctl`.  Raise KeyError."""
    numbers = NUMBERS[architecture]
    rules = {numbers[name]: rule for name, rule in sorted(make_rules(filter).items()) if name in numbers}
    program = _Program()
    program.add(LOAD, ARCHITECTURE_AT)
    program.jump(JUMP_EQUAL, ARCHITECTURES[architecture], otherwise="kill")
    program.add(LOAD, NUMBER_AT)
    if architecture == "x86_64":
        program.jump(JUMP_EQUAL, NO_CALL, then="allow")
        program.jump(JUMP_GREATER_EQUAL, X32_BIT, then="kill")
    program.jump(JUMP_EQUAL, numbers["clone3"], then="missing")
    if not filter.sets_ids:
        program.jump(JUMP_EQUAL, numbers[MISSING_WITHOUT_IDS], then="missing")
    unsupported = {numbers[name] for name in SETS_ATTRIBUTES}
    refused = sorted(number for number, rule in rules.items() if not rule)
    for number in refused:
        verdict = "unsupported" if number in unsupported else "deny"
        program.jump(JUMP_EQUAL, number, then=verdict, otherwise="judge" if number == refused[-1] else _NEXT)
    # In the middle: a jump reaches at most 255 instructions.
    for label, returned in (
        ("allow", RET_ALLOW),
        ("deny", RET_ERRNO | EPERM),
        ("unsupported", RET_ERRNO | EOPNOTSUPP),
        ("missing", RET_ERRNO | ENOSYS),
        ("kill", RET_KILL_PROCESS),
    ):
        program.mark(label)
        program.add(RETURN, returned)
    program.mark("judge")
    asked = {numbers[name] for name in CHANGES_METADATA if name in numbers and filter.metadata is Metadata.ASKED}
    for number, rule in sorted(rules.items()):
        if rule:
            _judge(program, number, rule, RET_USER_NOTIF if number in asked else RET_ALLOW)
    program.add(RETURN, RET_ALLOW)
    return program.assemble()


def _judge(program: "_Program", number: int, rule: Rule, verdict: int) -> None:
    """Add the block of one call, which begins with the call's number loaded, and leaves it loaded."""
    past = f"past {number}"
    program.jump(JUMP_EQUAL, number, otherwise=past)
    for index, checks in enumerate(rule):
        for check in checks:
            _test(program, check, failed=f"{number} {index}")
        program.add(RETURN, verdict)
        program.mark(f"{number} {index}")
    program.add(RETURN, RET_ERRNO | EPERM)
    program.mark(past)


def _test(program: "_Program", check: Check, *, failed: str) -> None:
    program.add(LOAD, ARGUMENTS_AT + 8 * check.argument)
    if check.mask != 0xFFFF_FFFF:
        program.add(AND, check.mask)
    if check.negated:
        for value in check.values:
            program.jump(JUMP_EQUAL, value, then=failed)
        return
    held = f"{failed} {program.length}"
    for value in check.values[:-1]:
        program.jump(JUMP_EQUAL, value, then=held)
    program.jump(JUMP_EQUAL, check.values[-1], otherwise=failed)
    program.mark(held)


class _Program:
    def __init__(self) -> None:
        self._instructions: list[tuple[int, str, str, int]] = []
        self._labels: dict[str, int] = {}

    @property
    def length(self) -> int:
        return len(self._instructions)

    def add(self, code: int, operand: int) -> None:
        self._instructions.append((code, _NEXT, _NEXT, operand))

    def jump(self, code: int, operand: int, *, then: str = _NEXT, otherwise: str = _NEXT) -> None:
        self._instructions.append((code, then, otherwise, operand))

    def mark(self, label: str) -> None:
        self._labels[label] = self.length

    def assemble(self) -> bytes:
        """Pack the program.  Raise `struct.error` for a jump beyond the 255 instructions that its byte can say."""
        return b"".join(
            struct.pack("<HBBI", code, self._distance(at, then), self._distance(at, otherwise), operand)
            for at, (code, then, otherwise, operand) in enumerate(self._instructions)
        )

    def _distance(self, at: int, label: str) -> int:
        return 0 if label == _NEXT else self._labels[label] - at - 1
