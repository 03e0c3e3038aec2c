"""What to execute: a resolved program, its arguments, environment and directory.  Nothing is started here.

A sandbox turns one plan into another that confines it.
"""

import errno
import os
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from quarterdeck_sandbox import observed_files as observed

DEFAULT_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
"""Where a command is looked up when the server's environment has no PATH."""


class LaunchError(Exception):
    """A process cannot be started; `code` is a stable name, `signal` ended its sandbox (None: no signal)."""

    def __init__(self, code: str, message: str, *, signal: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.signal = signal


def refusal(message: str) -> LaunchError:
    """Return the error of a policy that may not, or cannot, be met."""
    return LaunchError("sandbox_refused", message)


def words_of(error: OSError) -> str:
    """Return an OSError's text for people: the system's words and the file, without the number."""
    return f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")


class LaunchPlan(msgspec.Struct, frozen=True):
    """A process to start: an absolute path, all arguments from the zeroth, the whole environment, a directory."""

    program: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str


def plan_launch(command: str, args: Sequence[str], env: Mapping[str, str], cwd: str) -> LaunchPlan:
    """Resolve `command` on the server's PATH.  Raise LaunchError `bad_cwd`, `command_not_found`, `not_executable`."""
    if not observed.isdir(cwd):
        raise LaunchError(
            "bad_cwd",
            f"the working directory {cwd} {'is not a directory' if observed.exists(cwd) else 'does not exist'}",
        )
    if not observed.access(cwd, os.X_OK):
        raise LaunchError("bad_cwd", f"the working directory {cwd} may not be entered")
    return LaunchPlan(_resolve(command, env.get("PATH") or DEFAULT_PATH, cwd), (command, *args), env, cwd)


def exec_error(number: int, plan: LaunchPlan) -> LaunchError:
    """Return the error for an `exec` that failed with this errno."""
    match number:
        case errno.ENOENT:
            return LaunchError(
                "command_not_found", f"{plan.program}: its interpreter (the first line's) does not exist"
            )
        case errno.ENOEXEC:
            return LaunchError(
                "not_executable",
                f"{plan.program} is not a program: it lacks a first line '#!…' or is for another machine",
            )
        case errno.EACCES:
            return LaunchError("not_executable", f"{plan.program} may not be executed")
        case errno.E2BIG:
            return LaunchError("spawn_failed", f"{plan.program}: arguments and environment are too large")
        case _:
            return LaunchError("spawn_failed", f"{plan.program}: {os.strerror(number)}")


def _resolve(command: str, path: str, cwd: str) -> str:
    if "/" in command:
        candidate = os.path.join(cwd, command)
        return _executable(candidate, command)
    refused: LaunchError | None = None
    for folder in path.split(os.pathsep):
        candidate = os.path.join(cwd, folder or ".", command)
        if not observed.exists(candidate):
            continue
        try:
            return _executable(candidate, command)
        except LaunchError as error:
            refused = refused or error
    raise refused or LaunchError("command_not_found", f"{command} is not on its PATH ({path})")


def _executable(candidate: str, command: str) -> str:
    if not observed.exists(candidate):
        raise LaunchError("command_not_found", f"{command} does not exist")
    if not observed.isfile(candidate) or not observed.access(candidate, os.X_OK):
        raise LaunchError("not_executable", f"{candidate} is not executable")
    return os.path.abspath(candidate)
