"""Put the entry that starts `quarterdeck serve` into a client's file, or take it out: the new text and its diff.

The text is worked out whole before anything is written; in the diff, which people see, secrets are hidden.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Final
from urllib.parse import urlsplit

from quarterdeck.config.load.document import DocumentError
from quarterdeck.config.load.text_edit import EditError

from .client_locations import ClientLocation, UserDirectories
from .documents import Editor, editor_of
from .row_shapes import common_row, dialled_row, started_row
from .user_file import UserFile, UserFileError, backups, read_user_file

PROGRAM: Final = "quarterdeck"
MODULE: Final = "quarterdeck.cli"

HTTP_PORT: Final = 8808
"""The port where we listen by default; equal to `host.http.options`, which is not loaded for it."""

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})

CONTEXT: Final = 2
"""Unchanged lines shown around the change."""

MAX_LINE: Final = 400
"""A file with a longer line was not laid out for people, and is shown as if it were."""

KEPT_VARIABLES: Final = ("QUARTERDECK_STATE_DIR", "QUARTERDECK_DATA_DIR", "QUARTERDECK_RUNTIME_DIR")
"""Variables that locate our files; they go into the entry, since a desktop client lacks a terminal's environment."""

_CACHES: Final = (".cache/uv/", "/uv/archive-", "/pipx/.cache/")
"""Where runners put programs that they may remove again."""

_MAX_BACKUPS: Final = 8
"""How many copies, newest first, are searched for the file as it was before `link`."""


class LinkError(Exception):
    """A client's file cannot be used; the message names it and says why, without its content."""


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """A change of one file; `text` is its new content, or the present one if there is nothing to do.

    `others` are further names under which it starts us, `beside` its other servers, which the client starts itself.
    """

    location: ClientLocation
    file: UserFile
    text: str
    others: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()

    @property
    def is_needed(self) -> bool:
        """Whether the file has to change."""
        return self.text != self.file.text

    def diff(self) -> list[str]:
        """Return the change, for people."""
        return show_change(str(self.location.path), self.file.text, self.text)


def show_change(name: str, old: str, new: str) -> list[str]:
    """Return the lines of a diff between two texts of the file `name`; empty if they are equal."""
    if old == new:
        return []
    before, after = (_view(text, editor_of(name)) for text in (old, new))
    return list(unified_diff(before, after, name, name, n=CONTEXT, lineterm=""))


def _view(text: str, editor: Editor) -> list[str]:
    if editor.is_json and any(len(line) > MAX_LINE for line in text.splitlines()):
        text = json.dumps(editor.parse(text), indent=2, ensure_ascii=False)
    return editor.mask(text).splitlines()


def own_command(argv0: str | None = None, search_path: str | None = None) -> tuple[str, ...]:
    """Return the command that starts this program from anywhere: the running script, the one beside our interpreter, or
    one of PATH.

    A link to it is kept as it is: an upgrade moves its target.
    """
    argv0 = sys.argv[0] if argv0 is None else argv0
    beside = Path(sys.executable).parent / PROGRAM
    found = shutil.which(PROGRAM, path=search_path)
    for candidate in (argv0 if Path(argv0).name == PROGRAM else None, beside, found):
        if candidate and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return (os.path.abspath(candidate),)
    return (sys.executable, "-m", MODULE)


def is_temporary(command: Sequence[str]) -> bool:
    """Return whether the program lies where a package runner may remove it."""
    return any(cache in command[0] for cache in _CACHES)


def make_entry(
    location: ClientLocation,
    dirs: UserDirectories,
    command: Sequence[str],
    arguments: Sequence[str],
    environ: Mapping[str, str],
    name: str = PROGRAM,
) -> dict[str, object]:
    """Return the row for the client's file that starts us."""
    env = {name: os.path.abspath(environ[name]) for name in KEPT_VARIABLES if environ.get(name)}
    words = [*command, "serve", *arguments]
    if location.is_across:
        # Variables of Windows do not reach us by themselves; --exec keeps the words away from a shell.
        words = ["env", *(f"{name}={value}" for name, value in env.items()), *words] if env else words
        words, env = ["wsl.exe", "--distribution", dirs.distribution, "--exec", *words], {}
    return started_row(location.client.shape, name, words, env)


def make_http_entry(location: ClientLocation, url: str, token: str, name: str = PROGRAM) -> dict[str, object]:
    """Return the row for the client's file that names our address.  Raises `LinkError` if the client takes none."""
    client = location.client
    if client.shape.url is None:
        raise LinkError(f"{client.title} takes no address in {location.path}: link it without --http")
    return dialled_row(client.shape, name, url, token)


def shown_token(location: ClientLocation, name: str) -> str:
    """Return the bearer token in our row of this name; empty without one, or if the file cannot be read."""
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
    """Return whether the row starts `quarterdeck serve` (directly, as a module, or through WSL) or names our usual
    address.
    """
    if "command" not in row and is_at_our_address(row):
        return True
    command, args = row.get("command"), row.get("args")
    words = [command, *(args if isinstance(args, list) else [])]
    texts = [word for word in words if isinstance(word, str)]
    before = texts[: texts.index("serve")] if "serve" in texts else []
    return any(text == MODULE or PROGRAM in {PurePosixPath(text).name, PureWindowsPath(text).stem} for text in before)


def is_at_our_address(row: Mapping[str, object], *, any_port: bool = False) -> bool:
    """Return whether the row's address is where `serve --http` and the daemon listen on this machine."""
    try:
        url = urlsplit(str(row.get("url", "")))
        port = url.port
    except ValueError:
        return False
    return url.hostname in _LOOPBACK and url.path.rstrip("/").endswith("/mcp") and (any_port or port == HTTP_PORT)


def plan_link(location: ClientLocation, name: str, entry: Mapping[str, object]) -> LinkPlan:
    """Plan to put `entry` under `name`.  Raises `LinkError` if the file cannot be read or parsed, or has a foreign
    server of that name.
    """
    file, rows = _read(location)
    own = {key for key, row in rows.items() if _is_ours(location, row)}
    others = tuple(key for key in rows if key != name and key in own)
    beside = tuple(key for key in rows if key != name and key not in own)
    if rows.get(name) == entry:
        return LinkPlan(location, file, file.text, others, beside)
    if name in rows and not _is_named_ours(location, rows[name]):
        raise LinkError(f"{location.path} has another server called {name!r}: choose a name of your own with --name")
    with _changing(location) as editor:
        text = editor.set_row(file.text, (*location.keys, name), entry)
    return LinkPlan(location, file, text, others, beside)


def plan_unlink(location: ClientLocation, name: str) -> LinkPlan:
    """Plan to remove our entry; the result is the file before `link`, to the byte, if nothing else has changed since.
    Raises `LinkError` if the file cannot be read or parsed, or the server of that name is not ours.
    """
    file, rows = _read(location)
    if name not in rows:
        return LinkPlan(location, file, file.text)
    if not _is_named_ours(location, rows[name]):
        raise LinkError(f"{location.path}: the server called {name!r} is not quarterdeck: it is left there")
    with _changing(location) as editor:
        text = editor.remove_row(file.text, (*location.keys, name))
    before = _text_before_link(location, file, name, rows[name])
    return LinkPlan(location, file, text if before is None else before)


def plan_take_out(location: ClientLocation, names: Sequence[str]) -> LinkPlan:
    """Plan to remove these servers, as far as the file has them.  Raises `LinkError` if the file cannot be read or
    parsed, or they cannot be removed.
    """
    file, rows = _read(location)
    text = file.text
    with _changing(location) as editor:
        for name in names:
            if name in rows:
                text = editor.remove_row(text, (*location.keys, name))
    return LinkPlan(location, file, text)


def _editor(location: ClientLocation) -> Editor:
    client = location.client
    return editor_of(location.path, has_comments=client.has_comments, has_list=client.has_list)


@contextmanager
def _changing(location: ClientLocation) -> Iterator[Editor]:
    try:
        yield _editor(location)
    except (DocumentError, EditError) as error:
        raise LinkError(f"{location.path} is not changed: {error}") from error


def _read(location: ClientLocation) -> tuple[UserFile, Mapping[str, object]]:
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
    """Return the rows of a file's text by name; None if something else is in their place."""
    editor = _editor(location)
    value: object = editor.parse(text)
    for key in location.keys:
        value = value.get(key, {}) if isinstance(value, Mapping) else None
    if value is None and not editor.is_json:
        return {}  # a key without a value in YAML
    if location.client.has_list and isinstance(value, list):
        named = [(row.get("name"), row) for row in value if isinstance(row, Mapping)]
        return {name: row for name, row in named if isinstance(name, str)}
    return value if isinstance(value, Mapping) else None


def _is_ours(location: ClientLocation, row: object) -> bool:
    return isinstance(row, Mapping) and is_own(common_row(location.client.shape, row))


def _is_named_ours(location: ClientLocation, row: object) -> bool:
    """Return whether a row under the user's name for us is ours: its address may then have any port."""
    return isinstance(row, Mapping) and (
        _is_ours(location, row) or is_at_our_address(common_row(location.client.shape, row), any_port=True)
    )


def _text_before_link(location: ClientLocation, file: UserFile, name: str, entry: object) -> str | None:
    assert isinstance(entry, Mapping)
    """Return the text of a copy from which linking makes just the present one."""
    for path in backups(location.path)[:_MAX_BACKUPS]:
        with suppress(UserFileError, DocumentError, EditError):
            copy = read_user_file(path)
            linked = _editor(location).set_row(copy.text, (*location.keys, name), entry)
            if (copy.mark, linked) == (file.mark, file.text) and name not in (_rows(location, copy.text) or ()):
                return copy.text
    return None
