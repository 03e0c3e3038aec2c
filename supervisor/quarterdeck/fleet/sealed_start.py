"""What a fleet needs of seals: how a server whose package is sealed is started, and that its code is still the same."""

import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager

import msgspec

from quarterdeck.seals.launch import SealedLaunch
from quarterdeck_protocol.configs import StdioServerConfig


class SealedStart(msgspec.Struct, frozen=True):
    """One start of a sealed server.

    Attributes:
        config: what is started in place of the package runner of its row.
        seal: the digest of its code.
        package: its package for people, such as `mcp-server-time 2.2.0 (PyPI)`.
        unrun_scripts: its packages whose install scripts were not run, with the scripts.
        hold: keeps everyone from removing the code inside its block, which may raise `ProtocolFault`.
        check: blocking; raises `ProtocolFault` if the code is not what was sealed.
    """

    config: StdioServerConfig
    seal: str
    package: str
    unrun_scripts: tuple[str, ...]
    hold: Callable[[], AbstractContextManager[None]]
    check: Callable[[], None]


Sealing = Callable[[StdioServerConfig], Awaitable[SealedStart | None]]
"""Return how this server is started from its seal, which is made if there is none yet, which may take minutes; None for
a server that runs as its row says.  Raises `ProtocolFault`.
"""


Checking = Callable[[StdioServerConfig], Awaitable[None]]
"""Compare the program of a server that runs as its row says with the approved one.  Raises `ProtocolFault`."""


async def start_unsealed(_: StdioServerConfig) -> None:
    """Seal nothing, and compare nothing: every server runs as its row says."""


def sealed_config(config: StdioServerConfig, launch: SealedLaunch, search_path: str) -> StdioServerConfig:
    """Return what is started in place of the row's package runner; what the row itself sets stays, but for its PATH,
    `search_path`, which begins with the package's own programs.
    """
    changed = {
        "command": launch.command,
        "args": launch.args,
        "env": {**launch.env, **config.env, "PATH": os.pathsep.join((*launch.path, search_path))},
        "sandbox": config.sandbox.model_copy(update={"read": (*config.sandbox.read, *launch.read)}),
    }
    return config.model_copy(update=changed)
