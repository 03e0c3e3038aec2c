"""The units of systemd: as it reads them, whatever paths hold, and nothing that would break a sandbox."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from quarterdeck.daemon.units import is_ours, service_unit, socket_unit

WORDS = ("/opt/my tools/python", "-I", "-m", "quarterdeck.cli", "service", "run")
ENVIRON = {"PATH": '/usr/bin:/opt/100% "mine"', "QUARTERDECK_STATE_DIR": "/home/a\\b/$state"}


def test_paths_with_odd_characters_come_through() -> None:
    """A `%` would be a specifier, a `$` a variable, a blank the end of a word: the daemon would not start."""
    text = service_unit("quarterdeck", WORDS, ENVIRON)
    assert 'ExecStart="/opt/my tools/python" -I -m quarterdeck.cli service run\n' in text
    assert 'Environment="PATH=/usr/bin:/opt/100%% \\"mine\\""\n' in text
    assert 'Environment="QUARTERDECK_STATE_DIR=/home/a\\\\b/$state"\n' in text
    assert "ExecStart=/a/$$b\n" in service_unit("quarterdeck", ["/a/$b"], {}).replace('"', "")
    assert "ListenStream=/run/100%%/door.sock\n" in socket_unit("quarterdeck", "/run/100%/door.sock")


def test_nothing_is_made_around_the_daemon_that_its_sandboxes_need() -> None:
    """Under another user namespace, or without the right to make one, no server could be confined."""
    keys = set(re.findall(r"^(\w+)=", service_unit("quarterdeck", WORDS, ENVIRON), re.MULTILINE))
    assert {"Delegate", "NoNewPrivileges", "KillMode", "OOMPolicy"} <= keys
    assert not {key for key in keys if key.startswith(("Protect", "Private", "RestrictN", "RestrictA", "MemoryDeny"))}


def test_a_bwrap_that_needs_privileges_may_gain_them() -> None:
    """On a kernel without user namespaces for users, `bwrap` is installed set-user-ID: no sandbox could be made."""
    text = service_unit("quarterdeck", WORDS, ENVIRON, is_hardened=False)
    assert not re.search(r"NoNewPrivileges|SystemCall|Lock|Restrict", text)


def test_what_we_wrote_is_known_whatever_was_added_to_it() -> None:
    """`uninstall` would leave it; or take away what somebody else wrote."""
    assert is_ours(service_unit("quarterdeck", WORDS, ENVIRON) + "[Service]\nNice=5\n")
    assert not is_ours("[Unit]\nDescription=mine\n" + "\n" * 5 + socket_unit("quarterdeck", "/s"))


@pytest.mark.process
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
def test_systemd_understands_every_line(tmp_path: Path) -> None:
    """It ignores what it does not know, with a line in a log that nobody reads."""
    (tmp_path / "quarterdeck.socket").write_text(socket_unit("quarterdeck", "/run/user/1000/100%/door.sock"))
    (tmp_path / "quarterdeck.service").write_text(service_unit("quarterdeck", ["/bin/sh", *WORDS[1:]], ENVIRON))
    verified = subprocess.run(
        ["systemd-analyze", "--user", "verify", *map(str, sorted(tmp_path.iterdir()))],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (verified.returncode, verified.stderr) == (0, "")
