"""Whether root may become other users here, give them files and end what they run: a container may forbid any of it."""

from pathlib import Path
from typing import Final

from quarterdeck_sandbox.identity import FIRST_UID, LAST_UID

NEEDED: Final = {"CAP_CHOWN": 0, "CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7}


def try_other_users() -> bool:
    """By what the kernel says of this process; nothing is changed."""
    try:
        status, setgroups = Path("/proc/self/status").read_text(), Path("/proc/self/setgroups").read_text()
        maps = [Path(f"/proc/self/{name}_map").read_text() for name in ("uid", "gid")]
    except OSError:
        return True  # an old kernel, without namespaces of users
    return "allow" in setgroups and has_capabilities(status) and all(covers_range(text) for text in maps)


def has_capabilities(status: str) -> bool:
    """Whether all of `NEEDED` are in force, by the text of `/proc/self/status`."""
    line = next((line for line in status.splitlines() if line.startswith("CapEff:")), "CapEff: 0")
    found = int(line.split()[1], 16)
    return all(found >> number & 1 for number in NEEDED.values())


def covers_range(text: str) -> bool:
    """Whether the users that we take, and those of ordinary people, exist here, by the text of a map of ids."""
    ranges = [(int(first), int(count)) for first, _, count in (line.split() for line in text.splitlines())]
    return any(first <= FIRST_UID and first + count > LAST_UID for first, count in ranges)
