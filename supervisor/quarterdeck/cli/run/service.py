"""`quarterdeck service`: have systemd or launchd run the daemon, from each login on.

    Linux    two user units: systemd holds the socket, so that no door finds it closed, and starts the daemon
    macOS    a launch agent: the daemon listens itself

A file that is replaced or removed is kept as a copy beside it.
"""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from quarterdeck.cli import options
from quarterdeck.cli.exits import CommandError, ExitCode, UsageError, as_command_error
from quarterdeck.cli.output import print_json, print_line, print_text
from quarterdeck.cli.parameters import Group
from quarterdeck.common.words import printable
from quarterdeck.config.clients.user_file import UserFile, UserFileError, read_user_file, write_user_file
from quarterdeck.config.places.paths import (
    APP_NAME,
    RUNTIME_DIR_VARIABLE,
    STATE_DIR_VARIABLE,
    UnsafePathError,
    default_state_dir,
    make_private_dir,
    runtime_dir,
    state_dir,
)
from quarterdeck.daemon.activation import DOOR, ActivationError, leave_service_group, take_sockets
from quarterdeck.daemon.client import ask_daemon, wait_until_gone
from quarterdeck.daemon.messages import Order
from quarterdeck.daemon.place import (
    KEY_NAME,
    SOCKET_NAME,
    NoAnswerError,
    NoDaemonError,
    connect,
    daemon_dir,
    listen,
    remove,
    running_dir,
    service_dir,
    start_lock,
)
from quarterdeck.daemon.start import log_path
from quarterdeck.daemon.units import is_ours, launch_agent, service_unit, socket_unit

group: Final = Group("Have the system run the daemon from each login on: systemd, or launchd on macOS.")

MANAGER_S: Final = 90.0
"""For one order to the service manager: a daemon that it ends answers its calls first."""

PROBE_S: Final = 5.0

KEPT_VARIABLES: Final = ("PATH", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
"""What the daemon finds programs and configuration by, which no login sets for services."""

_NO_MANAGER: Final = "start the daemon by hand with quarterdeck up, or let the first client start it"


@dataclass(frozen=True, slots=True)
class Manager:
    """The service manager of this machine.

    Attributes:
        name: what people call it.
        files: what it reads, with what they have to hold.
        starting: orders that have it run the daemon, once the files are there.
        ending: orders that have it forget the daemon, before they are removed.
        forgetting: orders after that.
    """

    name: str
    files: Mapping[Path, str]
    starting: tuple[tuple[str, ...], ...]
    ending: tuple[tuple[str, ...], ...]
    forgetting: tuple[tuple[str, ...], ...] = ()


@group.command("install")
def install(dry_run: options.DryRun = False, json: options.Json = False) -> None:
    """Have the daemon run from each login on; clients that are connected stay so."""
    manager = find_manager()
    changed = []
    with as_command_error(UserFileError, remedy="move it away, or make it a file of yours that can be written"):
        found = {path: read_user_file(path) for path in manager.files}
        for path, text in manager.files.items():
            if found[path].text == text:
                continue
            if found[path].status is not None and not is_ours(found[path].text):
                raise UserFileError(f"{path} is there already, and quarterdeck did not write it")
            changed.append(path)
            if not json:
                print_line(f"{path}:", "bold")
                print_text(text.rstrip())
                print_line()
        copies = [_write(found[path], manager.files[path]) for path in changed] if not dry_run else []
    if not dry_run:
        with as_command_error(UnsafePathError, OSError, remedy="see quarterdeck doctor"):
            make_private_dir(state_dir())  # launchd opens the log in it
        for order in manager.starting:
            _tell(order)
    if json:
        print_json(
            {
                "manager": manager.name,
                "files": [str(path) for path in manager.files],
                "changed": [str(path) for path in changed],
                "copies": [str(copy) for copy in copies if copy is not None],
            }
        )
        return
    for copy in copies:
        if copy is not None:
            print_line(f"as it was: {copy}")
    if dry_run:
        print_line("Nothing was changed." if changed else "All of it is there already.")
        return
    print_line(f"{manager.name} runs the daemon from now on, and from each login on.", "green")
    if manager.name == "systemd":
        print_line("It ends when you log out for good; `loginctl enable-linger` has it stay then, too.")


@group.command("uninstall")
def uninstall(json: options.Json = False) -> None:
    """Take out what `install` wrote; clients that are connected stay so."""
    manager = find_manager()
    removed, copies, left = [], [], []
    with as_command_error(UserFileError, remedy="remove it by hand"):
        found = {path: read_user_file(path) for path in manager.files}
    ours = {path: file for path, file in found.items() if file.status is not None and is_ours(file.text)}
    left = [path for path, file in found.items() if file.status is not None and path not in ours]
    if ours:
        for order in manager.ending:
            _tell(order)
        _leave()
        with as_command_error(UserFileError, OSError, remedy="remove it by hand"):
            for path, file in ours.items():
                if file.text != manager.files[path]:
                    copies.append(write_user_file(file, manager.files[path], datetime.now(UTC)))
                path.unlink()
                removed.append(path)
        for order in manager.forgetting:
            _tell(order)
    if json:
        print_json({"removed": [str(path) for path in removed], "left": [str(path) for path in left]})
        return
    for path in removed:
        print_line(f"removed: {path}")
    for copy in copies:
        print_line(f"it had been changed; as it was: {copy}")
    for path in left:
        print_line(f"left alone, for quarterdeck did not write it: {path}", stderr=True)
    if not ours:
        print_line("No service of quarterdeck is installed.")


@group.command("run")
def run_service() -> None:
    """Be the daemon, in the foreground, for a service manager: on the socket that it hands over, or on its own.

    A daemon that runs already makes room; its clients stay connected.
    """
    from .daemon import Entrance, serve

    leave_service_group()
    with as_command_error(ActivationError, remedy="run quarterdeck service install, again after an upgrade"):
        sockets = take_sockets()
        lent = sockets.pop(DOOR, None)
        for socket in sockets.values():
            socket.close()
        if lent is not None and lent.getsockname() != str(service_dir() / SOCKET_NAME):
            raise ActivationError(f"its socket is {lent.getsockname()!r}, where no door looks for it")
    with as_command_error(UnsafePathError, OSError, remedy="see quarterdeck doctor", code=ExitCode.NO_ANSWER):
        make_private_dir(state_dir())  # for the log; it may be the first of us here
        if lent is not None:
            _take_over()
            with start_lock(daemon_dir()):
                remove(daemon_dir())  # doors do not look there while this service listens
            make_private_dir(service_dir())
            keep_key(service_dir() / KEY_NAME)
            serve(Entrance(lent, service_dir(), is_managed=True, is_lent=True))
        while True:
            _take_over()
            with start_lock(daemon_dir()):
                try:
                    connect(daemon_dir(), PROBE_S).close()
                except NoDaemonError:
                    listener = listen(daemon_dir())
                    break
        serve(Entrance(listener, daemon_dir(), is_managed=True))


def find_manager() -> Manager:
    """What runs services of this user.

    Raises:
        CommandError: nothing that we know does.
    """
    words = (sys.executable, "-I", "-m", "quarterdeck.cli", "service", "run")
    environ = {
        STATE_DIR_VARIABLE: str(state_dir().absolute()),
        RUNTIME_DIR_VARIABLE: str(runtime_dir()),
        **{name: os.environ[name] for name in KEPT_VARIABLES if os.environ.get(name)},
    }
    for said in (*words, *environ.values()):
        if not said.isprintable():
            raise UsageError(f"no service file can hold this: {said!r}", "name another directory")
    # Without the protocol: an upgrade that speaks another one is installed over what there is.
    digest = service_dir().name.removeprefix("service").rpartition("-")[0]
    name = APP_NAME if state_dir() == default_state_dir() else f"{APP_NAME}{digest}"
    if sys.platform == "darwin":
        return _launchd(f"{name}.daemon", words, environ)
    program = shutil.which("systemctl")
    if program is None or not has_manager():
        what = "systemd runs no services of this user here" if program is not None else "there is no systemd here"
        raise CommandError(ExitCode.NOT_FOUND, f"{what}, and launchd is macOS's: nothing was installed", _NO_MANAGER)
    return _systemd(program, name, words, environ)


def keep_key(path: Path) -> None:
    """Make the key that doors must know, unless there is one, which a door may have read already.

    Raises:
        OSError: it cannot be written.
    """
    from quarterdeck.common.local_socket import make_key, read_key

    if not read_key(path):
        make_key(path)


def _systemd(program: str, name: str, words: tuple[str, ...], environ: Mapping[str, str]) -> Manager:
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"
    units = f"{name}.socket", f"{name}.service"
    manage = program, "--user"
    return Manager(
        "systemd",
        {
            folder / units[0]: socket_unit(name, str(service_dir() / SOCKET_NAME)),
            folder / units[1]: service_unit(name, words, environ, is_hardened=not _needs_privileges()),
        },
        starting=((*manage, "daemon-reload"), (*manage, "enable", "--now", *units)),
        ending=((*manage, "disable", *units), ("-", *manage, "stop", units[0])),
        forgetting=(("-", *manage, "daemon-reload"),),
    )


def _launchd(label: str, words: tuple[str, ...], environ: Mapping[str, str]) -> Manager:
    path = Path.home() / "Library" / "LaunchAgents" / f"{label}.plist"
    domain = f"gui/{os.getuid()}"
    end = "launchctl", "bootout", f"{domain}/{label}"
    return Manager(
        "launchd",
        {path: launch_agent(label, words, environ, str(log_path().absolute()))},
        starting=(("-", *end), ("launchctl", "bootstrap", domain, str(path))),
        ending=(("-", *end),),
    )


def has_manager() -> bool:
    """Whether something here runs services of this user that `install` knows."""
    return sys.platform == "darwin" or (shutil.which("systemctl") is not None and _has_user_manager())


def _has_user_manager() -> bool:
    """Whether systemd runs services of this user: its socket is in the session's directory."""
    places = os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{os.geteuid()}"
    return any(place.startswith("/") and os.path.exists(f"{place}/systemd/private") for place in places)


def _needs_privileges() -> bool:
    """Whether `bwrap` is installed set-user-ID, and could make no sandbox without new privileges."""
    program = shutil.which("bwrap")
    return program is not None and bool(os.stat(program).st_mode & stat.S_ISUID)


def _write(file: UserFile, text: str) -> Path | None:
    return write_user_file(file, text, datetime.now(UTC))


def _tell(order: tuple[str, ...]) -> None:
    """Give the service manager one order; one that begins with `-` may fail.

    Raises:
        CommandError: it does not obey.
    """
    may_fail, order = order[0] == "-", order[1:] if order[0] == "-" else order
    said = " ".join(order)
    try:
        ended = subprocess.run(
            order, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=MANAGER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(ExitCode.NO_ANSWER, f"{said}: {error}", "run it by hand, to see why") from None
    if ended.returncode and not may_fail:
        why = printable(ended.stderr.strip() or f"it ended with {ended.returncode}")
        raise CommandError(ExitCode.NO_ANSWER, f"{said}: {why}", "quarterdeck service install can be run again")


def _take_over() -> None:
    """Have a daemon that a door started make room: its doors come to us."""
    try:
        wait_until_gone(ask_daemon(daemon_dir(), Order.REPLACE).pid)
    except NoDaemonError:
        pass
    except NoAnswerError as error:
        remedy = "quarterdeck down ends it"
        raise CommandError(ExitCode.NO_ANSWER, f"a daemon runs already, and {error}", remedy) from None


def _leave() -> None:
    """Have the service's daemon make room for one that a door starts.

    It is still reached by the name of a socket that its manager has closed.
    """
    directory = service_dir()
    if running_dir() == directory:
        try:
            wait_until_gone(ask_daemon(directory, Order.REPLACE).pid)
        except (NoDaemonError, NoAnswerError):
            return  # `down` still ends it
    with start_lock(daemon_dir()):
        remove(directory)
