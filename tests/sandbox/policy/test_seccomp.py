"""The filters: compiled programs against the rules in plain words, numbers against libseccomp's, and real processes."""

import errno
import itertools
import platform
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sandbox.kernel_lab import play

from quarterdeck_sandbox.policy.seccomp import (
    ARCHITECTURES,
    CHANGES_METADATA,
    DENIED,
    NUMBERS,
    SETS_ATTRIBUTES,
    Filter,
    Metadata,
    compile_filter,
)
from quarterdeck_sandbox.policy.tiers import Rules

from .bpf import Verdict, judge

pytestmark = pytest.mark.process

FILTERS = [
    Filter(*choice, metadata=metadata) for metadata in Metadata for choice in itertools.product([False, True], repeat=6)
]
CLOSED, OPEN = Filter(*6 * [False]), Filter(*6 * [True])
LOW = 0xFFFF_FFFF
HIGH = 1 << 32

needs_seccomp = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ARCHITECTURES, reason="no filter for this machine"
)


def allowed(wanted: Filter, name: str, arguments: list[int]) -> bool:
    first, second, third = (value & LOW for value in arguments[:3])
    kind = second % 16
    match name:
        case "clone":
            return not any(first >> bit & 1 for bit in (17, 25, 26, 27, 28, 29, 30))
        case "ioctl" if wanted.metadata is Metadata.ALLOWED or second in (0x80086601, 0x80046601, 0xC020660B):
            return second not in (0x5412, 0x541C, 0x5423)
        case "ioctl":
            return second >> 8 & 0xFF != ord("f") and second not in CLOSED_REQUESTS
        case _ if name in CHANGES_METADATA and wanted.metadata is Metadata.CLOSED:
            return False
        case _ if name in SETS_ATTRIBUTES:
            return wanted.metadata is Metadata.ALLOWED
        case "personality":
            return first in (0, 8, 0x20000, 0x20008, LOW)
        case "prlimit64":
            return first == 0
        case "socket" if first == 1:
            return wanted.unix
        case "socket" if first == 16:
            return wanted.inet and third == 0
        case "socket":
            return wanted.inet and first in (2, 10) and kind in (1, 2) and third in (0, 1, 6, 17, 58)
        case "socketpair":
            return first == 1 and (wanted.unix or kind in (1, 5))
        case "truncate":
            return wanted.truncates
        case "chmod" | "creat" | "fchmod" | "mknod":
            return wanted.sets_ids or second & 0o6000 == 0
        case "fchmodat" | "fchmodat2" | "mknodat":
            return wanted.sets_ids or third & 0o6000 == 0
        case "open":
            return wanted.sets_ids or second & 0o2000_0100 == 0 or third & 0o6000 == 0
        case "openat":
            return wanted.sets_ids or third & 0o2000_0100 == 0 or arguments[3] & 0o6000 == 0
        case "memfd_create":
            return wanted.shared_memory
        case "shmget" | "shmat" | "shmctl" | "mq_open":
            return wanted.shared_memory and wanted.reaches_out
        case "kill":
            return wanted.reaches_out or first != LOW
        case "setpriority":
            return wanted.reaches_out or first == second == 0
        case "ioprio_set":
            return wanted.reaches_out or (first, second) == (1, 0)
        case "sched_setaffinity" | "sched_setattr" | "sched_setparam" | "sched_setscheduler":
            return wanted.reaches_out or first == 0
        case "process_mrelease" | "mq_unlink":
            return wanted.reaches_out
        case _ if name[:3] in ("msg", "sem"):
            return wanted.reaches_out
        case _:
            return name not in DENIED


CLOSED_REQUESTS = {
    *(0x5412, 0x541C, 0x5423, 0x401C5820, 0x40087602, 0x40047602, 0x40047211),
    *(0x50009401, 0x5000940E, 0x5000940F, 0x50009417, 0x50009418, 0x5000943F, 0x4008941A, 0xC0C89425, 0xC0C09425),
}

words = st.one_of(
    st.sampled_from([0, 1, 2, 3, 5, 8, 10, 16, 17, 40, 58, 262, 0x5412, 0x541C, 0x5423, 0x7E02_0000, LOW]),
    st.sampled_from([0x40086602, 0x80086601, 0xC020660B, 0x40049409, *sorted(CLOSED_REQUESTS)]),
    st.integers(0, 31).map(lambda bit: 1 << bit),
    st.integers(0, LOW),
)
arguments = st.lists(
    st.builds(lambda low, high: low | high << 32, words, st.sampled_from([0, 1, LOW])), min_size=6, max_size=6
)


@given(st.sampled_from(FILTERS), st.sampled_from(sorted(ARCHITECTURES)), st.data(), arguments)
def test_the_compiled_program_says_what_the_rules_say(
    wanted: Filter, architecture: str, data: st.DataObject, arguments: list[int]
) -> None:
    """A jump one off would let a server mount, or keep it from opening a socket."""
    numbers = NUMBERS[architecture]
    name = data.draw(st.sampled_from(sorted(numbers)))
    verdict = judge(compile_filter(wanted, architecture), ARCHITECTURES[architecture], numbers[name], arguments)
    if name == "clone3" or (name == "openat2" and not wanted.sets_ids):
        assert verdict is Verdict.ENOSYS
    elif not allowed(wanted, name, arguments):
        assert verdict is (Verdict.EOPNOTSUPP if name in SETS_ATTRIBUTES else Verdict.EPERM)
    else:
        asks = wanted.metadata is Metadata.ASKED and name in CHANGES_METADATA
        assert verdict is (Verdict.ASK if asks else Verdict.ALLOW)


@given(st.sampled_from(FILTERS), st.sampled_from(sorted(ARCHITECTURES)), words, arguments)
def test_a_call_that_no_rule_names_is_allowed_whatever_its_arguments(
    wanted: Filter, architecture: str, number: int, arguments: list[int]
) -> None:
    """Ordinary programs would break, or a 32-bit call would be taken for another."""
    if number in NUMBERS[architecture].values():
        return
    x32 = architecture == "x86_64" and 0x4000_0000 <= number < LOW
    verdict = judge(compile_filter(wanted, architecture), ARCHITECTURES[architecture], number, arguments)
    assert verdict is (Verdict.KILL if x32 else Verdict.ALLOW)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@given(words, words)
def test_another_architecture_kills(architecture: str, other: int, number: int) -> None:
    """The numbers of a 32-bit program mean other calls: the whole table would be beside the point."""
    if other != ARCHITECTURES[architecture]:
        assert judge(compile_filter(OPEN, architecture), other, number) is Verdict.KILL


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("socket", [2 | HIGH, 1]),
        ("socket", [2, 3 | 0o2000000]),
        ("socket", [2, 1, 262]),
        ("socket", [1, 1]),
        ("socketpair", [1, 2 | 0o4000]),
        ("socketpair", [1, 3]),
        ("prlimit64", [1]),
        ("kill", [LOW]),
        ("kill", [-1 & (1 << 64) - 1]),
        ("ioctl", [0, 0x5412 | HIGH]),
        ("clone", [0x1000_0000 | HIGH | 17]),
    ],
)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_no_spelling_of_an_argument_gets_past(architecture: str, name: str, arguments: list[int]) -> None:
    """The kernel reads the low half of a register: set high bits must not hide what it will see."""
    number = NUMBERS[architecture][name]
    assert judge(compile_filter(CLOSED, architecture), ARCHITECTURES[architecture], number, arguments) is Verdict.EPERM


def test_an_architecture_without_a_table_is_told_apart() -> None:
    """A server would start with a filter for another machine."""
    with pytest.raises(KeyError):
        compile_filter(CLOSED, "riscv64")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_numbers_are_those_of_libseccomp(architecture: str) -> None:
    """A wrong digit would leave a call open, and nobody would see."""
    # Its import raises RuntimeError where the library itself is missing.
    try:
        import pyseccomp  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except (ImportError, RuntimeError, OSError) as error:
        pytest.skip(f"needs pyseccomp and libseccomp: {error}")
    arch = getattr(pyseccomp.Arch, architecture.upper())
    known = {name: pyseccomp.resolve_syscall(arch, name) for name in NUMBERS[architecture]}
    # A library older than a call says -1.
    assert {name: number for name, number in known.items() if number != -1}.items() <= NUMBERS[architecture].items()
    assert len([number for number in known.values() if number != -1]) > 60


def filtered(wanted: Filter) -> Rules:
    """This filter and nothing else, for the gate."""
    return Rules(uses_landlock=False, seccomp=compile_filter(wanted, platform.machine()))


@needs_seccomp
def test_a_real_kernel_refuses_what_is_denied() -> None:
    """All of the above would be true of a program that the kernel reads otherwise."""
    found = play("attempts", rules=filtered(CLOSED))
    denied = {name for name, number in found.items() if number == errno.EPERM}
    assert denied == set(found) - {"clone3", "stream pair", "own limit", "signal a child"}
    assert found["clone3"] == errno.ENOSYS
    assert found["stream pair"] == found["own limit"] == found["signal a child"] == 0


@needs_seccomp
def test_an_open_filter_leaves_what_it_says_open() -> None:
    """A server that needs a socket or shared memory would not have it though its policy says so."""
    found = play("attempts", rules=filtered(Filter(inet=True, unix=True, shared_memory=True, reaches_out=True)))
    for name in ("inet", "inet6", "unix", "netlink", "memfd", "datagram pair", "renice another"):
        assert found[name] != errno.EPERM, name
    for name in ("raw", "mptcp", "vsock", "packet", "audit netlink", "ptrace", "unshare", "mount", "bpf", "io_uring"):
        assert found[name] == errno.EPERM, name


@needs_seccomp
def test_ordinary_work_goes_on_under_the_closest_filter() -> None:
    """Servers would break: threads, child processes, pools, databases and temporary files need no denied call."""
    found = play("work", rules=filtered(CLOSED))
    assert found == {"pool": [0, 1, 4, 9], "shell": "hello\n", "thread": 42, "sqlite": [[1]], "asyncio": 0}
