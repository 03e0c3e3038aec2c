"""Serves that are doors here, and the daemon behind them, of which nothing is left at the end."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from quarterdeck.daemon.client import ask_daemon
from quarterdeck.daemon.messages import DaemonStatus, Order
from quarterdeck.daemon.place import NoDaemonError, daemon_dir
from support.clients.raw_client import RawStdioClient
from support.config.places import write_config
from support.processes.commands import DEADLINE_S, PATIENT, command, popen_forked
from support.processes.leftovers import assert_gone, no_leftovers
from support.waiting import eventually


def daemon_status() -> DaemonStatus | None:
    """What the daemon says; None without one."""
    try:
        return ask_daemon(daemon_dir(), Order.STATUS)
    except NoDaemonError:
        return None


def shown_status() -> dict[str, Any] | None:
    """The same as `status --json` has it."""
    found = daemon_status()
    return None if found is None else msgspec.to_builtins(found)


def door(config: Path, *options: str, is_forked: bool = True) -> RawStdioClient:
    """A client that has started a door and said nothing yet; forked, or as a user does."""
    words = ("serve", "--config", str(config), *PATIENT, *options)
    argv, popen = (words, popen_forked) if is_forked else (command(*words), subprocess.Popen)
    return RawStdioClient(argv, deadline_s=DEADLINE_S, popen=popen)


def wait_for_client(*, calls: int = 0) -> None:
    """Until the daemon knows one that has so many calls under way."""
    eventually(lambda: [each["calls"] for each in (shown_status() or {}).get("clients", ())] == [calls], DEADLINE_S)


def kill_daemon() -> None:
    """As the kernel would when memory is short."""
    found = shown_status()
    assert found is not None
    os.kill(found["pid"], signal.SIGKILL)
    assert_gone([found["pid"]])


@contextmanager
def doors() -> Iterator[None]:
    """Serves are doors in this block; the daemon ends with it, if there is one, and nothing of it is left."""
    with no_leftovers(DEADLINE_S), pytest.MonkeyPatch.context() as patch:
        patch.delenv("QUARTERDECK_OWN", raising=False)
        try:
            yield
        finally:
            if (found := daemon_status()) is None:
                eventually(lambda: not daemon_dir().exists(), DEADLINE_S)  # one may be about to end
            else:
                below = psutil.Process(found.pid).children(recursive=True)
                with suppress(NoDaemonError):
                    ask_daemon(daemon_dir(), Order.END)
                assert_gone([found.pid, *(process.pid for process in below)], DEADLINE_S)
                assert not daemon_dir().exists()


@contextmanager
def doors_at_home(folder: Path, **servers: object) -> Iterator[Path]:
    """The same with a home below `folder`, whose own file has these servers; the daemon ends with its last client.

    What is yielded is `folder`, beside which projects may lie.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUARTERDECK_LINGER", "0")
        patch.setenv("HOME", str(folder / "home"))
        patch.setenv("XDG_CONFIG_HOME", str(folder / "home" / ".config"))
        write_config(own_file(folder), **servers)
        with doors():
            yield folder


def own_file(folder: Path) -> Path:
    return folder / "home" / ".config" / "quarterdeck" / "mcp.json"
