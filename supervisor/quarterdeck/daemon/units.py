"""The daemon's user units for systemd. Pure.

Nothing in the service's unit makes a mount, user or process namespace around the daemon (`ProtectSystem=`,
`PrivateTmp=`, `RestrictNamespaces=`, …): each sandbox makes its own, which an outer one would break. Its filters, and
the lack of new privileges, hold for servers, too.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

MARK: Final = "written by `quarterdeck service install`"
"""Marks, in their first lines, the files that we may replace and remove."""

END_S: Final = 60
"""Seconds for the daemon to end calls, servers and native commands."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_@+=:,./-]+")

_HARDENING: Final = """\
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
SystemCallArchitectures=native
SystemCallFilter=~@clock @cpu-emulation @module @obsolete @raw-io @reboot @swap
SystemCallErrorNumber=EPERM
"""
"""Settings that keep programs from gaining privileges, which a `bwrap` that is installed set-user-ID needs."""


def socket_unit(name: str, socket_path: str) -> str:
    """Return the unit of the socket, where systemd listens and starts the daemon for a door. `name` is that of both
    units, without a suffix; `socket_path` is absolute.
    """
    return f"""\
# {MARK}; changes belong into a file beside it: systemctl --user edit {name}.socket
[Unit]
Description=Quarterdeck: where MCP clients come in

[Socket]
ListenStream={_escaped(socket_path)}
FileDescriptorName=door
SocketMode=0600
DirectoryMode=0700
Backlog=128

[Install]
WantedBy=sockets.target
"""


def service_unit(name: str, words: Iterable[str], environ: Mapping[str, str], *, is_hardened: bool = True) -> str:
    """Return the unit of the daemon, which the command line `words` runs, beginning with an absolute path. `name` is
    that of both units, without a suffix; `is_hardened` keeps it from gaining privileges.
    """
    variables = "".join(f"Environment={_quoted(f'{key}={value}')}\n" for key, value in environ.items())
    return f"""\
# {MARK}; changes belong into a file beside it: systemctl --user edit {name}.service
[Unit]
Description=Quarterdeck: runs MCP servers for all clients
Wants={name}.socket
After={name}.socket

[Service]
Type=exec
ExecStart={" ".join(_quoted(word).replace("$", "$$") for word in words)}
{variables}WorkingDirectory=/
UMask=0077
LimitCORE=0
Restart=on-failure
RestartSec=200ms
KillMode=mixed
TimeoutStopSec={END_S}
Delegate=yes
OOMPolicy=continue
{_HARDENING if is_hardened else ""}
[Install]
WantedBy=default.target
"""


def is_ours(text: str) -> bool:
    """Return whether we wrote this file, even if it was changed since."""
    return any(MARK in line for line in text.splitlines()[:4])


def _quoted(word: str) -> str:
    return word if _PLAIN.fullmatch(word) else '"' + _escaped(word).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escaped(text: str) -> str:
    return text.replace("%", "%%")
