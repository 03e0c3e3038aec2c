"""Keep approved plans as Markdown files in a session's directory."""

import re
import time
import unicodedata
from pathlib import Path
from typing import Final

from quarterdeck.common.files.replace import replace_file

PLANS_DIRNAME: Final = "plans"
"""Within a session's directory."""

MAX_SLUG_CHARS: Final = 48
"""Long enough to tell plans apart, short enough for a listing."""

MAX_PLAN_BYTES: Final = 1024 * 1024
"""Of a plan that is read back; one that a person approved is far shorter."""

_BASE36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def plan_slug(plan: str) -> str:
    """A name for the plan's file: its first line that says something, as lower-case ASCII words joined by `-`.

    At most `MAX_SLUG_CHARS` long, never beginning or ending in `-`; `plan` when nothing is left.
    """
    title = next((line for line in plan.splitlines() if line.strip()), "")
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    return re.sub("[^a-z0-9]+", "-", plain).strip("-")[:MAX_SLUG_CHARS].rstrip("-") or "plan"


def plan_file_path(session_dir: Path | str, slug: str) -> Path:
    """Where the plan of this name is kept."""
    return Path(session_dir) / PLANS_DIRNAME / f"{slug}.md"


def write_plan(session_dir: Path | str, plan: str) -> Path:
    """Keep a plan, beside all earlier ones; its file, named `<time in base 36>-<slug>.md`.

    Raises:
        OSError: it cannot be written.
    """
    milliseconds, slug = time.time_ns() // 1_000_000, plan_slug(plan)
    while True:
        path = plan_file_path(session_dir, f"{_base36(milliseconds)}-{slug}")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            replace_file(path, plan.encode("utf-8", "replace"), must_be_new=True)
        except FileExistsError:
            milliseconds += 1  # two plans in one millisecond
            continue
        return path


def read_plan(path: Path | str) -> str | None:
    """The plan in a file; None when it is missing, unreadable, or too large to be one."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_PLAN_BYTES + 1)
        return data.decode() if len(data) <= MAX_PLAN_BYTES else None
    except (OSError, ValueError):
        return None


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _BASE36[digit] + digits
    return digits or "0"
