"""What would become of a server's start here: its sandbox is laid out in a place of its own, and nothing is started."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from quarterdeck.config.environment import server_environment
from quarterdeck.config.paths import runtime_dir, state_dir
from quarterdeck.config.trusted_files import with_announced
from quarterdeck.config.user_environment import user_environment
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_sandbox.confine import Asker, confine
from quarterdeck_sandbox.launch import LaunchError, plan_launch, words_of
from quarterdeck_sandbox.machine import Machine
from quarterdeck_sandbox.mounts import Places
from quarterdeck_sandbox.temporary import temporary_folder


class Outlook(StrEnum):
    """How a start would go."""

    STARTS = "starts"
    WEAKER = "starts weaker"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """One server's.

    Attributes:
        why: a line for each way in which it is weaker, or the reason with what to do.
        code: that of the fault with which its start would end; empty where it would not.
    """

    server: str
    outlook: Outlook
    why: tuple[str, ...] = ()
    code: str = ""


def rehearse(
    config: StdioServerConfig, machine: Machine, trusted: Sequence[str] = (), *, allow_unsandboxed: bool = False
) -> Rehearsal:
    """Lay out what would confine it, beside where its private home is or will be.

    Args:
        config: the server.
        machine: what there is.
        trusted: files that hold the user's word.
        allow_unsandboxed: limits alone would do.
    """
    try:
        with temporary_folder("quarterdeck-rehearsal-", private_place()) as base:
            home, tmp = Path(base, "home"), Path(base, "tmp")
            for folder in (home, tmp):
                folder.mkdir(mode=0o700)
            user_home = Path(os.environ.get("HOME") or "/")
            private = (str(state_dir()), str(runtime_dir()))
            places = Places(home, tmp, user_home, private, with_announced(trusted))
            environ = {**os.environ, **user_environment(os.environ)}
            env = server_environment(config, os.environ, home, tmp)
            plan = plan_launch(config.command, config.args, env, config.cwd or str(home))
            asker = Asker(places, environ, machine, allow_unsandboxed=allow_unsandboxed)
            gaps = confine(plan, config.sandbox, asker).gaps
    except LaunchError as error:
        return Rehearsal(config.id, Outlook.REFUSED, (str(error),), error.code)
    except OSError as error:
        return Rehearsal(config.id, Outlook.REFUSED, (words_of(error),), "spawn_failed")
    return Rehearsal(config.id, Outlook.WEAKER if gaps else Outlook.STARTS, gaps)


def private_place() -> str:
    """The folder in which servers have their private homes, or the nearest above it: who reaches one, reaches both.

    Raises:
        LaunchError: none of them can be written to.
    """
    place = state_dir()
    for folder in (place, *place.parents):
        if folder.is_dir() and os.access(folder, os.W_OK):
            return str(folder)
    raise LaunchError(
        "directory_unusable", f"{place}, for its private home, cannot be written to, nor any folder above"
    )
