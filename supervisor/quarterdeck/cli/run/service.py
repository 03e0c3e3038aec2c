"""`quarterdeck service`: have systemd run the daemon, from each login on.

There are two user units: systemd holds the socket, so that no door finds it closed, and starts the daemon.  A file that
is replaced or removed is kept as a copy beside it.
"""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from quarterdeck.cli import options
from quarterdeck.cli.exits import CommandError, ExitCode, NotFoundError, UsageError, as_command_error
from quarterdeck.cli.output import print_json, print_line, print_text
from quarterdeck.cli.parameters import Group
from quarterdeck.common.words import printable
from quarterdeck.config.clients.user_file import UserFileError, read_user_file, write_user_file
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
from quarterdeck.daemon.units import is_ours, service_unit, socket_unit

group: Final = Group("Have systemd run the daemon from each login on.")

SYSTEMD_S: Final = 90.0
"""For one order to systemd: a daemon that it ends answers its calls first."""

PROBE_S: Final = 5.0

KEPT_VARIABLES: Final = ("PATH", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "QUARTERDECK_DATA_DIR")
"""Variables that locate programs and configuration, and that no login sets for services."""

_NO_MANAGER: Final = "start the daemon by hand with quarterdeck up, or let the first client start it"


@dataclass(frozen=True, slots=True)
class Units:
    """The daemon's units: the socket's file, then the service's, by path; and the path of `systemctl`."""

    files: Mapping[Path, str]
    systemctl: str

    def order(self, *words: str, may_fail: bool = False) -> None:
        """Give the user's systemd one order; raise CommandError if it fails, and must not."""
        order = (self.systemctl, "--user", *words)
        said = " ".join(order)
        try:
            ended = subprocess.run(
                order, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SYSTEMD_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CommandError(ExitCode.NO_ANSWER, f"{said}: {error}", "run it by hand, to see why") from None
        if ended.returncode and not may_fail:
            why = printable(ended.stderr.strip() or f"it ended with {ended.returncode}")
            raise CommandError(ExitCode.NO_ANSWER, f"{said}: {why}", "quarterdeck service install can be run again")


@group.command("install")
def install(dry_run: options.DryRun = False, json: options.Json = False) -> None:
    """Have the daemon run from each login on; clients that are connected stay so."""
    units = find_units()
    changed = []
    with as_command_error(UserFileError, remedy="move it away, or make it a file of yours that can be written"):
        found = {path: read_user_file(path) for path in units.files}
        for path, text in units.files.items():
            if found[path].text == text:
                continue
            if found[path].status is not None and not is_ours(found[path].text):
                raise UserFileError(f"{path} is there already, and quarterdeck did not write it")
            changed.append(path)
            if not json:
                print_line(f"{path}:", "bold")
                print_text(text.rstrip())
                print_line()
        copies = (
            [write_user_file(found[path], units.files[path], datetime.now(UTC)) for path in changed]
            if not dry_run
            else []
        )
    if not dry_run:
        units.order("daemon-reload")
        units.order("enable", "--now", *(path.name for path in units.files))
    if json:
        print_json(
            {
                "manager": "systemd",
                "files": [str(path) for path in units.files],
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
    print_line("systemd runs the daemon from now on, and from each login on.", "green")
    print_line("It ends when you log out for good; `loginctl enable-linger` has it stay then, too.")


@group.command("uninstall")
def uninstall(json: options.Json = False) -> None:
    """Take out what `install` wrote; clients that are connected stay so."""
    units = find_units()
    removed, copies, left = [], [], []
    with as_command_error(UserFileError, remedy="remove it by hand"):
        found = {path: read_user_file(path) for path in units.files}
    ours = {path: file for path, file in found.items() if file.status is not None and is_ours(file.text)}
    left = [path for path, file in found.items() if file.status is not None and path not in ours]
    if ours:
        names = [path.name for path in units.files]
        units.order("disable", *names)
        units.order("stop", names[0], may_fail=True)
        directory = service_dir()
        # Its daemon makes way for one that a client starts; it is still reached by a socket that systemd has closed.
        with suppress(NoDaemonError, NoAnswerError):  # `down` still ends it
            if running_dir() == directory:
                wait_until_gone(ask_daemon(directory, Order.REPLACE).pid)
            with start_lock(daemon_dir()):
                remove(directory)
        with as_command_error(UserFileError, OSError, remedy="remove it by hand"):
            for path, file in ours.items():
                if file.text != units.files[path]:
                    copies.append(write_user_file(file, units.files[path], datetime.now(UTC)))
                path.unlink()
                removed.append(path)
        units.order("daemon-reload", may_fail=True)
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


def find_units() -> Units:
    """Return the units of this user's daemon; raise CommandError if no systemd runs services of this user."""
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
    bwrap, program = shutil.which("bwrap"), shutil.which("systemctl")
    if program is None or not has_manager():
        what = "systemd runs no services of this user here" if program is not None else "there is no systemd here"
        raise NotFoundError(f"{what}: nothing was installed", _NO_MANAGER)
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"
    # A `bwrap` that is set-user-ID could make no sandbox without new privileges.
    is_hardened = bwrap is None or not os.stat(bwrap).st_mode & stat.S_ISUID
    files = {
        folder / f"{name}.socket": socket_unit(name, str(service_dir() / SOCKET_NAME)),
        folder / f"{name}.service": service_unit(name, words, environ, is_hardened=is_hardened),
    }
    return Units(files, program)


def keep_key(path: Path) -> None:
    """Make the key that stdio clients must know, unless one exists, which a client may have read. May raise OSError."""
    from quarterdeck.common.local_socket import make_key, read_key

    if not read_key(path):
        make_key(path)


def has_manager() -> bool:
    """Return whether systemd runs services of this user: its socket is in the session's directory."""
    places = os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{os.geteuid()}"
    has_session = any(place.startswith("/") and os.path.exists(f"{place}/systemd/private") for place in places)
    return has_session and shutil.which("systemctl") is not None


def _take_over() -> None:
    """Have a daemon that a client started make way: its clients come to us."""
    try:
        wait_until_gone(ask_daemon(daemon_dir(), Order.REPLACE).pid)
    except NoDaemonError:
        pass
    except NoAnswerError as error:
        remedy = "quarterdeck down ends it"
        raise CommandError(ExitCode.NO_ANSWER, f"a daemon runs already, and {error}", remedy) from None
