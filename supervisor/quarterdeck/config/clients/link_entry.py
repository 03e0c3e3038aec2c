"""Put the entry that starts `quarterdeck serve` into a client's file, or take it out: the new text and its diff.

The text is worked out whole before anything is written; in the diff, which people see, secrets are hidden.
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Final
from urllib.parse import urlsplit

from quarterdeck.config.load.document import DocumentError
from quarterdeck.config.load.jsonc import parse
from quarterdeck.config.load.text_edit import EditError

from .client_locations import ClientLocation, UserDirectories
from .documents import Format, format_of, mask_as, parse_as, remove_row, set_row
from .row_shapes import common_row, dialled_row, started_row
from .user_file import UserFile, UserFileError, backups, read_user_file

PROGRAM: Final = "quarterdeck"

MODULE: Final = "quarterdeck.cli"

HTTP_PORT: Final = 8808
"""Where we listen unless told otherwise; as `host.http.options`, which is not loaded for it."""

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})

CONTEXT: Final = 2
"""Unchanged lines around the change."""

MAX_LINE: Final = 400
"""Where a line is longer the file was not laid out for people, and is shown as if it were."""

KEPT_VARIABLES: Final = ("QUARTERDECK_STATE_DIR", "QUARTERDECK_RUNTIME_DIR")
"""Say where our files are; a desktop client has not the environment of a terminal, so they go along."""

_CACHES: Final = (".cache/uv/", "/uv/archive-", "/pipx/.cache/")
"""Where runners put programs that they may remove again."""

_MAX_BACKUPS: Final = 8
"""How many copies are looked at, newest first, for what a file was before we were put in."""


class LinkError(Exception):
    """A client's file cannot be used; it names the file, says why, and is not about what is in it."""


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """A change of one file.

    Attributes:
        text: what the file would hold; the same as it holds when there is nothing to do.
        others: further names under which the file starts us.
        beside: its other servers, which the client starts itself; of a file that is to start us.
    """

    location: ClientLocation
    file: UserFile
    text: str
    others: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to do."""
        return self.text != self.file.text

    def diff(self) -> list[str]:
        """The change, for people."""
        return show_change(str(self.location.path), self.file.text, self.text)


def show_change(name: str, old: str, new: str) -> list[str]:
    """The lines of a diff between two texts of the file `name`; none when they are the same."""
    if old == new:
        return []
    before, after = (_view(text, format_of(name)) for text in (old, new))
    first = 0
    while first < min(len(before), len(after)) and before[first] == after[first]:
        first += 1
    rest = 0
    while rest < min(len(before), len(after)) - first and before[-1 - rest] == after[-1 - rest]:
        rest += 1
    start = max(0, first - CONTEXT)
    shown_before = before[start : min(len(before), len(before) - rest + CONTEXT)]
    shown_after = after[start : min(len(after), len(after) - rest + CONTEXT)]
    return [
        f"--- {name}",
        f"+++ {name}",
        f"@@ -{_extent(start, shown_before)} +{_extent(start, shown_after)} @@",
        *_lines(shown_before, shown_after),
    ]


def _lines(before: list[str], after: list[str]) -> list[str]:
    lines: list[str] = []
    for tag, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            lines += [f" {line}" for line in before[a:b]]
        else:
            lines += [f"-{line}" for line in before[a:b]]
            lines += [f"+{line}" for line in after[c:d]]
    return lines


def _extent(start: int, lines: list[str]) -> str:
    return f"{start + 1 if lines else start},{len(lines)}"


def _view(text: str, format_: Format) -> list[str]:
    lines = text.splitlines()
    if format_ is Format.JSON and any(len(line) > MAX_LINE for line in lines):
        text = json.dumps(parse(text, has_comments=True), indent=2, ensure_ascii=False)
    return mask_as(format_, text).splitlines()


def own_command(argv0: str | None = None, search_path: str | None = None) -> tuple[str, ...]:
    """How this program is started, from anywhere: the script that runs, the one beside our interpreter, one of PATH.

    A link to it is kept as it is: an upgrade moves what it points to.
    """
    argv0 = sys.argv[0] if argv0 is None else argv0
    beside = Path(sys.executable).parent / PROGRAM
    found = shutil.which(PROGRAM, path=search_path)
    for candidate in (argv0 if Path(argv0).name == PROGRAM else None, beside, found):
        if candidate and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return (os.path.abspath(candidate),)
    return (sys.executable, "-m", MODULE)


def is_temporary(command: Sequence[str]) -> bool:
    """Whether the program lies where a package runner may remove it."""
    return any(cache in command[0] for cache in _CACHES)


def make_entry(
    location: ClientLocation,
    dirs: UserDirectories,
    command: Sequence[str],
    arguments: Sequence[str],
    environ: Mapping[str, str],
    name: str = PROGRAM,
) -> dict[str, object]:
    """The row for the client's file, which starts us."""
    env = {name: os.path.abspath(environ[name]) for name in KEPT_VARIABLES if environ.get(name)}
    words = [*command, "serve", *arguments]
    if location.is_across:
        # Variables of Windows do not reach us by themselves; --exec keeps the words away from a shell.
        words = ["env", *(f"{name}={value}" for name, value in env.items()), *words] if env else words
        words, env = ["wsl.exe", "--distribution", dirs.distribution, "--exec", *words], {}
    return started_row(location.client.shape, name, words, env)


def make_http_entry(location: ClientLocation, url: str, token: str, name: str = PROGRAM) -> dict[str, object]:
    """The row for the client's file, which names the address where we listen.

    Raises:
        LinkError: the client takes none there.
    """
    client = location.client
    if client.shape.url is None:
        raise LinkError(f"{client.title} takes no address in {location.path}: link it without --http")
    return dialled_row(client.shape, name, url, token)


def shown_token(location: ClientLocation, name: str) -> str:
    """The bearer token in the row of this name, if it is ours; empty without one, and where the file cannot be read."""
    try:
        row = _read(location)[1].get(name)
    except LinkError:
        return ""
    if not isinstance(row, Mapping) or not _is_named_ours(location, row):
        return ""
    headers = common_row(location.client.shape, row).get("headers")
    value = headers.get("Authorization") if isinstance(headers, Mapping) else None
    return value.removeprefix("Bearer ") if isinstance(value, str) else ""


def is_own(row: Mapping[str, object]) -> bool:
    """Whether the row starts `quarterdeck serve`, directly, as a module, or through WSL; or names our usual address."""
    if "command" not in row and is_at_our_address(row):
        return True
    command, args = row.get("command"), row.get("args")
    words = [command, *(args if isinstance(args, list) else [])]
    texts = [word for word in words if isinstance(word, str)]
    before = texts[: texts.index("serve")] if "serve" in texts else []
    return any(text == MODULE or PROGRAM in {PurePosixPath(text).name, PureWindowsPath(text).stem} for text in before)


def is_at_our_address(row: Mapping[str, object], *, any_port: bool = False) -> bool:
    """Whether the row's address is where `serve --http` and the daemon listen on this machine."""
    try:
        url = urlsplit(str(row.get("url", "")))
        port = url.port
    except ValueError:
        return False
    return url.hostname in _LOOPBACK and url.path.rstrip("/").endswith("/mcp") and (any_port or port == HTTP_PORT)


def plan_link(location: ClientLocation, name: str, entry: Mapping[str, object]) -> LinkPlan:
    """The file with `entry` under `name`.

    Raises:
        LinkError: it cannot be read or parsed, or has a server of that name that is not ours.
    """
    file, rows = _read(location)
    own = {key for key, row in rows.items() if _is_ours(location, row)}
    others = tuple(key for key in rows if key != name and key in own)
    beside = tuple(key for key in rows if key != name and key not in own)
    if rows.get(name) == entry:
        return LinkPlan(location, file, file.text, others, beside)
    if name in rows and not _is_named_ours(location, rows[name]):
        raise LinkError(f"{location.path} has another server called {name!r}: choose a name of your own with --name")
    try:
        text = _with_entry(location, file.text, name, entry)
    except (DocumentError, EditError) as error:
        raise LinkError(f"{location.path} is not changed: {error}") from error
    return LinkPlan(location, file, text, others, beside)


def plan_unlink(location: ClientLocation, name: str) -> LinkPlan:
    """The file without our entry; what it was before `link`, to the byte, when nothing else has changed in it since.

    Raises:
        LinkError: it cannot be read or parsed, or what has that name is not ours.
    """
    file, rows = _read(location)
    if name not in rows:
        return LinkPlan(location, file, file.text)
    if not _is_named_ours(location, rows[name]):
        raise LinkError(f"{location.path}: the server called {name!r} is not quarterdeck: it is left there")
    try:
        text = _without_entry(location, file.text, name)
    except (DocumentError, EditError) as error:
        raise LinkError(f"{location.path} is not changed: {error}") from error
    before = _text_before_link(location, file, name, rows[name])
    return LinkPlan(location, file, text if before is None else before)


def plan_take_out(location: ClientLocation, names: Sequence[str]) -> LinkPlan:
    """The file without these servers, as far as it has them.

    Raises:
        LinkError: it cannot be read or parsed, or they cannot be taken out.
    """
    file, rows = _read(location)
    text = file.text
    for name in names:
        if name in rows:
            try:
                text = _without_entry(location, text, name)
            except (DocumentError, EditError) as error:
                raise LinkError(f"{location.path} is not changed: {error}") from error
    return LinkPlan(location, file, text)


def _read(location: ClientLocation) -> tuple[UserFile, Mapping[str, object]]:
    """The file, and its rows by name."""
    try:
        file = read_user_file(location.path)
        rows = _rows(location, file.text)
    except UserFileError as error:
        raise LinkError(str(error)) from error
    except DocumentError as error:
        raise LinkError(f"{location.path} is left as it is, since it cannot be read: {error}") from error
    if rows is None:
        raise LinkError(f"{location.path} is left as it is: its {'.'.join(location.keys)!r} is not an object")
    return file, rows


def _rows(location: ClientLocation, text: str) -> Mapping[str, object] | None:
    """The rows of a file's text by name; None when something else is in their place."""
    value: object = parse_as(format_of(location.path), text, has_comments=location.client.has_comments)
    for key in location.keys:
        value = value.get(key, {}) if isinstance(value, Mapping) else None
    if value is None and format_of(location.path) is Format.YAML:
        return {}  # a key that nothing stands behind
    if location.client.has_list and isinstance(value, list):
        named = [(row.get("name"), row) for row in value if isinstance(row, Mapping)]
        return {name: row for name, row in named if isinstance(name, str)}
    return value if isinstance(value, Mapping) else None


def _with_entry(location: ClientLocation, text: str, name: str, entry: object) -> str:
    assert isinstance(entry, Mapping)
    path, client = (*location.keys, name), location.client
    return set_row(
        format_of(location.path), text, path, entry, has_comments=client.has_comments, is_item=client.has_list
    )


def _without_entry(location: ClientLocation, text: str, name: str) -> str:
    path, client = (*location.keys, name), location.client
    return remove_row(format_of(location.path), text, path, has_comments=client.has_comments)


def _is_ours(location: ClientLocation, row: object) -> bool:
    return isinstance(row, Mapping) and is_own(common_row(location.client.shape, row))


def _is_named_ours(location: ClientLocation, row: object) -> bool:
    """Whether a row is ours that has the name which the user gives: then an address may be one that we do not know."""
    return isinstance(row, Mapping) and (
        _is_ours(location, row) or is_at_our_address(common_row(location.client.shape, row), any_port=True)
    )


def _text_before_link(location: ClientLocation, file: UserFile, name: str, entry: object) -> str | None:
    """The text of a copy from which linking makes just the present one."""
    for path in backups(location.path)[:_MAX_BACKUPS]:
        with suppress(UserFileError, DocumentError, EditError):
            copy = read_user_file(path)
            linked = _with_entry(location, copy.text, name, entry)
            if (copy.mark, linked) == (file.mark, file.text) and name not in (_rows(location, copy.text) or ()):
                return copy.text
    return None
