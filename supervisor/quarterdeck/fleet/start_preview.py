"""Say how the start of a server would go, without starting it."""

import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from quarterdeck.config.environment import server_environment, user_environment
from quarterdeck.config.places.paths import runtime_dir, state_dir
from quarterdeck.config.places.trusted_files import with_announced
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_sandbox import (
    LaunchError,
    Machine,
    Places,
    Requester,
    confine,
    plan_launch,
    temporary_folder,
    words_of,
)


class Outlook(StrEnum):
    """How a start would go."""

    STARTS = "starts"
    WEAKER = "starts weaker"
    REFUSED = "refused"


class StartPreview(msgspec.Struct, frozen=True):
    """How the start of one server would go. `why` has a line for each way in which it is weaker, or the reason with
    what to do; `code` is that of the fault with which its start would end, empty for none.
    """

    server: str
    outlook: Outlook
    why: tuple[str, ...] = ()
    code: str = ""


def preview_start(
    config: StdioServerConfig, machine: Machine, trusted: Sequence[str] = (), *, allow_unsandboxed: bool = False
) -> StartPreview:
    """Lay out how this server would be confined, next to its private home; start nothing. The arguments are those of
    `WorkerSession`.
    """
    try:
        with temporary_folder("quarterdeck-rehearsal-", private_homes_folder()) as base:
            home, tmp = Path(base, "home"), Path(base, "tmp")
            for folder in (home, tmp):
                folder.mkdir(mode=0o700)
            user_home = Path(os.environ.get("HOME") or "/")
            private = (str(state_dir()), str(runtime_dir()))
            places = Places(home, tmp, user_home, private, with_announced(trusted))
            environ = {**os.environ, **user_environment(os.environ)}
            env = server_environment(config, os.environ, home, tmp)
            plan = plan_launch(config.command, config.args, env, config.cwd or str(home))
            requester = Requester(places, environ, machine, allow_unsandboxed=allow_unsandboxed)
            gaps = confine(plan, config.sandbox.values, requester).gaps
    except LaunchError as error:
        return StartPreview(config.id, Outlook.REFUSED, (str(error),), error.code)
    except OSError as error:
        return StartPreview(config.id, Outlook.REFUSED, (words_of(error),), "spawn_failed")
    return StartPreview(config.id, Outlook.WEAKER if gaps else Outlook.STARTS, gaps)


def private_homes_folder() -> str:
    """Return the folder of the servers' private homes, or the nearest existing one above it. Raise LaunchError if none
    can be written to.
    """
    place = state_dir()
    for folder in (place, *place.parents):
        if folder.is_dir() and os.access(folder, os.W_OK):
            return str(folder)
    raise LaunchError(
        "directory_unusable", f"{place}, for its private home, cannot be written to, nor any folder above"
    )
