"""Warn that sandboxes are partial on this machine: once for each state directory, not before every command.

What exactly is missing stands in `ps`, `inspect` and `doctor`; another set of gaps is told again.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .paths import state_dir

NOTICE: Final = "Sandbox is partial here (%s): see `quarterdeck doctor`"

MARKER: Final = "sandbox-notice"
"""In the state directory: of what it was said last."""

_log = logging.getLogger("quarterdeck.sandbox")


def names_of(gaps: Sequence[str]) -> str:
    """What the gaps are of, in short: `network, memory`."""
    return ", ".join(sorted({gap.partition(":")[0] for gap in gaps}))


def warn_once(gaps: Sequence[str], directory: Path | None = None) -> bool:
    """Warn of `gaps`, lines such as `network: …`, unless that was done; whether it was now.

    Where nothing can be noted down it is said again.
    """
    names = names_of(gaps)
    marker = (directory or state_dir()) / MARKER
    try:
        if marker.read_text("utf-8", "replace") == names:
            return False
    except OSError:
        pass  # never said, or not noted down
    _log.warning(NOTICE, names)
    try:
        marker.write_text(names, "utf-8")
    except OSError:
        pass  # there is no such directory, or its disk is full, or it is not ours
    return True
