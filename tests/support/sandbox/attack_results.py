"""What the attacks may get: nothing, but for what Landlock cannot hold, and what no confinement is needed for."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from quarterdeck_protocol.policy_values import Tier
from support.sandbox.hostile import ATTACKS

FAMILIES: Final = ("files", "kernel", "metadata", "neighbours", "processes", "reaching", "rights", "sockets")
"""The modules of `tests/attacks` whose attacks can be run one after the other."""


def names(module: str, kind: str = "attack") -> list[str]:
    """The attacks of a module, in its order; `kind` is how they are entered: attack, bomb or life."""
    return re.findall(rf"^@{kind}\ndef (\w+)", (ATTACKS / f"{module}.py").read_text(), re.MULTILINE)


_PROCESS_LIST: Final = "Landlock does not hide the process list"
_METADATA: Final = "Landlock does not hide the metadata of files"
_HOST: Final = "without namespaces the machine's name, network cards and tables can be seen"

IMPOSSIBLE: Final = {
    Tier.BUBBLEWRAP: {},
    Tier.LANDLOCK: {
        "list_processes": _PROCESS_LIST,
        "stat_outside": _METADATA,
        "watch_files": _METADATA,
        "see_interfaces": _HOST,
        "see_host_name": _HOST,
        "see_host_sockets": _HOST,
        "system_v_list": _HOST,
    },
}
"""What each tier cannot hold, with the reason; as README and receipt say."""

NOT_BARE: Final = {"tcp_to_gateway": "would knock at a real router"}
"""What is never run without confinement, with the reason."""


@dataclass(frozen=True, slots=True)
class Bomb:
    """Bombs that are run one after the other in one sandbox, and what they may end in beside being refused.

    Attributes:
        names: the bombs.
        limits: those of which one may end the whole tree, and is then named by the dossier.
        dies: it ends everything that it can reach, itself included; nothing more is heard of it.
        under: limits of its own.
    """

    names: tuple[str, ...]
    limits: frozenset[str] = frozenset()
    dies: bool = False
    under: Mapping[str, str] = field(default_factory=dict)


_FILES: Final = frozenset({"scratch_bytes", "scratch_inodes", "memory_bytes"})

BOMBS: Final = (
    *(
        Bomb((name,), frozenset({"processes"}))
        for name in ("fork_bomb", "fork_bomb_recursive", "thread_bomb", "zombie_flood")
    ),
    *(
        Bomb((name,), frozenset({"memory_bytes"}))
        for name in (
            "memory_bomb",
            "memory_bomb_of_a_tree",
            "shared_memory_bomb",
            "anonymous_file_bomb",
            "segment_bomb",
            "pipe_bomb",
            "socket_bomb",
        )
    ),
    *(Bomb((name,), _FILES) for name in ("fill_every_mount", "inode_bomb")),
    *(
        Bomb((name,), frozenset({"cpu_s"}), under={"cpu_s": "0.5"})
        for name in ("burn_processor", "burn_processor_in_turns")
    ),
    Bomb(("descriptor_bomb", "core_flood", "big_file")),
    Bomb(("kill_everything",), dies=True),
    Bomb(("stop_everything",), frozenset({"wall_s"}), dies=True, under={"wall_s": "2"}),
)
"""Every bomb that is judged by what became of the command."""

BOMB_LIMITS: Final = {
    "memory_bytes": "128M",
    "processes": "40",
    "open_files": "64",
    "file_size_bytes": "8M",
    "wall_s": "30",
    "scratch_bytes": "16M",
    "scratch_inodes": "1000",
}
"""What they are run under, far below the ceilings at which they stop by themselves."""

OUTPUTS: Final = {
    "endless_stdout": "output_bytes",
    "endless_line": "line_bytes",
    "huge_message": "line_bytes",
    "slow_line": "partial_line_s",
}
"""Bombs of output, which the worker of a server keeps, with the limit that each meets."""
