"""Numbers, sizes, times and untrusted text as people may be shown them on a terminal.  Pure."""

import json
import re
from typing import Final

from quarterdeck_protocol.faults import Dossier
from quarterdeck_sandbox import signal_name

_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")

_STYLING: Final = re.compile(r"\x1b\[[0-9;:]*m")
"""Colours and weights: harmless, and lost."""

_CONTROL: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200c\u200e\u200f\u2060-\u2065\u206a-\u206f"
    r"\u2800\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
"""What moves the cursor, retitles the window, turns text around, cannot be encoded, or is not seen though a model reads
it; not newline and tab, nor what joins and colours emoji.
"""

_ORDER: Final = re.compile(r"^(?P<before>\s*):(?=:[A-Za-z])|(?<=#)#(?=(?:\w{1,32})?\[)", re.MULTILINE)
"""Commands that CI systems read in a log.  GitHub and similar systems read `::error …`, also after white space.  Others
read `##vso[…`, `##[…` and `##teamcity[…` anywhere.
"""


def printable(text: str) -> str:
    """Return `text` with control characters and CI commands as escapes. All text that a server may have written passes
    through this or `flat` before people see it.
    """
    text = _CONTROL.sub(lambda found: _escape(found[0]), _STYLING.sub("", text))
    return _ORDER.sub(_without_order, text) if "::" in text or "##" in text else text


def _without_order(found: re.Match[str]) -> str:
    return r"\x23" if found["before"] is None else found["before"] + r"\x3a"


def flat(text: str) -> str:
    """Return `text` as printable text on one line, with line ends and tabs written as escapes too."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def one_line(text: str) -> str:
    """The first line of `text` that says something."""
    return printable(next((line.strip() for line in text.splitlines() if line.strip()), ""))


def utf8(path: object) -> str:
    """Return a path, or another text that may not be Unicode, as JSON can hold it."""
    return str(path).encode("utf-8", "backslashreplace").decode()


def printable_json(text: str) -> str:
    """Return one line of JSON with the same value, escaping everything that `printable` escapes."""
    text = _CONTROL.sub(lambda found: json.dumps(found[0])[1:-1], text).replace("\x7f", "\\u007f")
    return _ORDER.sub(r"\\u0023", text) if "##" in text else text


def size(count: int) -> str:
    """`count` bytes for people: `512 B`, `4.1 MiB`."""
    if count < 1024:
        return f"{count} B"
    step = min((count.bit_length() - 1) // 10, len(_UNITS))
    return f"{count / 1024**step:.1f} {_UNITS[step - 1]}"


def peak_memory(count: int, *, is_sampled: bool) -> str:
    """The most memory that a process held; `is_sampled` when it was only looked at now and then."""
    return f"peak memory {'at least ' if is_sampled else ''}{size(count)}"


def how_it_ended(dossier: Dossier) -> str:
    """Describe a process's end and use of resources on one line; empty if nothing is known."""
    facts = []
    if dossier.exit_status is not None:
        facts.append(f"exit status {dossier.exit_status}")
    if dossier.signal is not None:
        facts.append(f"killed by {signal_name(dossier.signal)}")
    if dossier.limit is not None:
        facts.append(f"limit hit: {printable(dossier.limit)}")
    if dossier.uptime_s is not None:
        facts.append(f"up {duration(dossier.uptime_s)}")
    if dossier.peak_rss_bytes is not None:
        facts.append(peak_memory(dossier.peak_rss_bytes, is_sampled=dossier.peak_is_sampled))
    if dossier.cpu_s is not None:
        facts.append(f"{dossier.cpu_s:.2f} s of CPU")
    return ", ".join(facts)


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 event`, `2,000 events`."""
    return f"1 {noun}" if count == 1 else f"{count:,} {plural or noun + 's'}"


def clipped(text: str, most: int) -> str:
    """`text`, or its first `most` characters and an ellipsis."""
    return text if len(text) <= most else f"{text[:most]}…"


def duration(seconds: float) -> str:
    """Return a time for people: `850 ms`, `4.2 s`, `42 s`, `3 m 12 s`, `5 h 04 m`, `2 d 3 h`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02} m"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def _escape(character: str) -> str:
    number = ord(character)
    if number > 0xFFFF:
        return f"\\U{number:08x}"
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
