"""The two kinds of workers, of which a zygote imports one: they import nothing of one another.

stdio    drives a server that is a child process, as a relay over its pipes; without the SDK
remote   drives a server behind a URL, by the SDK
"""

from collections.abc import Callable
from typing import NamedTuple

from quarterdeck_protocol.spawn_orders import WorkerKind

from .server import RunServer


class Kind(NamedTuple):
    """What a worker of one kind runs, and what its zygote does once, before the first fork."""

    run_server: RunServer
    warm_up: Callable[[], None]


def load(kind: WorkerKind) -> Kind:
    """Import all that workers of this kind need."""
    match kind:
        case WorkerKind.STDIO:
            from .stdio import rehearsal
            from .stdio import run as stdio

            return Kind(stdio.run_server, rehearsal.rehearse)
        case WorkerKind.REMOTE:
            from .remote import run as remote

            return Kind(remote.run_server, remote.warm_up)
