"""Policies and machines made at random: any that a user may write, any that may be found."""

from hypothesis import strategies as st
from pydantic import ValidationError

from quarterdeck_protocol.policy import Limits, SandboxPolicy
from quarterdeck_protocol.policy_values import Grant, NetworkMode, Preset, Property, Tier
from quarterdeck_sandbox.policy.machine import Bubblewrap, Cgroups, Machine

_PATHS = st.lists(st.sampled_from(["/a", "/a/b", "/c", "/d//e/..", "/"]), max_size=2)
_BYTES = st.none() | st.integers(1 << 20, 1 << 40) | st.sampled_from(["512 MiB", "2G", "1.5GiB"])
_SECONDS = st.none() | st.floats(0.001, 1e9)
_LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "memory_bytes": _BYTES,
        "processes": st.none() | st.integers(1, 1 << 22),
        "open_files": st.none() | st.integers(16, 1 << 20),
        "file_size_bytes": _BYTES,
        "cpu_s": _SECONDS,
        "cpu_share": st.none() | st.floats(0.01, 64),
        "wall_s": _SECONDS,
        "scratch_bytes": _BYTES,
        "scratch_inodes": st.none() | st.integers(16, 1 << 20),
        "output_bytes": _BYTES,
        "line_bytes": _BYTES,
        "partial_line_s": _SECONDS,
    },
)
_FIELDS = st.fixed_dictionaries(
    {"preset": st.sampled_from(Preset)},
    optional={
        "read": _PATHS,
        "write": _PATHS,
        "hidden": _PATHS,
        "network": st.none()
        | st.sampled_from(NetworkMode)
        | st.lists(st.sampled_from(["a.example:1", "B.example.:65535", "localhost:80"]), min_size=1, max_size=3),
        "environment": st.lists(st.sampled_from(["A", "B"]), max_size=3),
        "limits": _LIMITS,
        "require": st.none() | st.lists(st.sampled_from(Property), max_size=2),
        "grants": st.lists(st.sampled_from(Grant), max_size=2),
        "minimum": st.none() | st.sampled_from(Tier),
    },
)


def _policy(fields: dict[str, object]) -> SandboxPolicy | None:
    try:
        return SandboxPolicy.model_validate(fields)
    except ValidationError:
        return None


POLICIES = _FIELDS.map(_policy).filter(lambda policy: policy is not None)
"""Those that contradict themselves left out."""

LIMITS = _LIMITS.map(Limits.model_validate)

_PROGRAMS = st.sampled_from(["", "/usr/bin/it"])

MACHINES = st.builds(
    Machine,
    system=st.sampled_from(["linux", "linux", "darwin"]),
    architecture=st.sampled_from(["x86_64", "aarch64", "riscv64"]),
    kernel=st.sampled_from(["6.18.44", "5.14.0-427.el9.x86_64", "4.18.0", ""]),
    euid=st.sampled_from([0, 1000]),
    bubblewrap=st.builds(
        Bubblewrap,
        works=st.booleans(),
        makes_network=st.booleans(),
        hides_users=st.booleans(),
        nests_safely=st.booleans(),
        why=st.sampled_from(["", "no permission"]),
    ),
    landlock_abi=st.integers(0, 9),
    seccomp=st.booleans(),
    cgroups=st.builds(
        Cgroups,
        controllers=st.dictionaries(st.sampled_from(["memory", "pids", "cpu"]), st.just("/sys/fs/cgroup/x")),
        legacy=st.frozensets(st.sampled_from(["memory", "pids", "cpu"])),
    ),
    pasta=_PROGRAMS,
    slirp4netns=_PROGRAMS,
    gate=_PROGRAMS,
)
