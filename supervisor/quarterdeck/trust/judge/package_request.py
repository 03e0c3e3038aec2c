"""Read from a command line which package it asks a package runner for.  Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath
from typing import Final


class Ecosystem(StrEnum):
    """Where a package is looked for."""

    NPM = "npm"
    UV = "uv"
    VENV = "venv"


@dataclass(frozen=True, slots=True)
class Request:
    """A package that was asked for.

    Attributes:
        name: the package, or the module or script that it provides.
        spec: the package as the command line has it, with what it says of versions.
        is_module: whether `name` is a Python module's.
    """

    ecosystem: Ecosystem
    name: str
    spec: str
    is_module: bool = False


def request_of(command: str, args: Sequence[str]) -> Request | None:
    """What `command` with `args` asks for; None when it is no runner that is known, or names a place and no package."""
    program = re.sub(r"\.(?:exe|cmd)$", "", PurePath(command).name)
    words = list(args)
    match program, words[:2]:
        case "npx", _:
            return _npm(words)
        case "npm", ["exec" | "x", *_]:
            return _npm(words[1:])
        case "uvx", _:
            return _uv(words)
        case "uv", ["tool", "run"]:
            return _uv(words[2:])
    if _PYTHON.fullmatch(program):
        module = words[words.index("-m") + 1 : words.index("-m") + 2] if "-m" in words else []
        return Request(Ecosystem.VENV, module[0], module[0], is_module=True) if module else None
    return Request(Ecosystem.VENV, program, program) if PurePath(command).is_absolute() else None


def runner_of(command: str, args: Sequence[str]) -> str | None:
    """The package runner that this command line starts, which fetches what it runs; None when it is none."""
    program = re.sub(r"\.(?:exe|cmd)$", "", PurePath(command).name)
    for words in ((program,), (program, *args[:1]), (program, *args[:2])):
        if words in _RUNNERS:
            return _RUNNERS[words]
    return None


_RUNNERS: Final = {
    ("npx",): "npm",
    ("npm", "exec"): "npm",
    ("npm", "x"): "npm",
    ("bunx",): "bun",
    ("bun", "x"): "bun",
    ("pnpx",): "pnpm",
    ("pnpm", "dlx"): "pnpm",
    ("yarn", "dlx"): "yarn",
    ("uvx",): "uv",
    ("uv", "run"): "uv",
    ("uv", "tool", "run"): "uv",
    ("pipx", "run"): "pipx",
    ("deno", "run"): "deno",
}
"""By how each is called: the tool that fetches and keeps the packages."""

_PYTHON: Final = re.compile(r"python[\d.]{0,6}")
_NPM_NAME: Final = re.compile(r"(?:@[a-z0-9~-][a-z0-9._~-]{0,127}/)?[A-Za-z0-9~-][A-Za-z0-9._~-]{0,127}")
_PYPI_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")

_NPM_VALUED: Final = frozenset(
    {"-c", "--call", "--registry", "--cache", "--prefix", "--userconfig", "-w", "--workspace"}
)
_UV_VALUED: Final = frozenset(
    """
    --with -w --with-editable --with-requirements --index-url -i --extra-index-url --index --default-index
    --find-links -f --python -p --cache-dir --constraints -c --overrides --directory --project --config-file
    --env-file --color --exclude-newer --resolution --prerelease --index-strategy --keyring-provider
    --allow-insecure-host --link-mode --refresh-package --upgrade-package -P --config-setting -C --build-constraints
    -b --python-platform
    """.split()  # noqa: SIM905 - as words they are read, as a list they are not
)
"""Options that a value follows."""


def _npm(words: list[str]) -> Request | None:
    package, first = _options(words, _NPM_VALUED, frozenset({"-p", "--package"}))
    spec = package or first
    if spec is None:
        return None
    cut = spec.find("@", 1)
    name = spec if cut < 0 else spec[:cut]
    return Request(Ecosystem.NPM, name, spec) if _NPM_NAME.fullmatch(name) else None


def _uv(words: list[str]) -> Request | None:
    package, first = _options(words, _UV_VALUED, frozenset({"--from"}))
    for spec in (package, first):
        # `--from git+https://…` names a place: the script most often has the package's name.
        found = _PYPI_NAME.match(spec or "")
        if (
            spec
            and found
            and not re.match(r"\w+\+|\w+://|.*[/\\]", spec)
            and spec[found.end() :].lstrip()[:1] in _AFTER_NAME
        ):
            return Request(Ecosystem.UV, found[0], spec)
    return None


_AFTER_NAME: Final = ("", "[", "=", "<", ">", "~", "!", "@", ";")


def _options(words: list[str], valued: frozenset[str], package: frozenset[str]) -> tuple[str | None, str | None]:
    """The package that an option names, and the first word that is no option."""
    named: str | None = None
    place = 0
    while place < len(words):
        word = words[place]
        option, joint, value = word.partition("=")
        if word == "--":
            return named, words[place + 1] if place + 1 < len(words) else None
        if option in package:
            named = named or (value if joint else words[place + 1] if place + 1 < len(words) else None)
        elif not word.startswith("-"):
            return named, word
        place += 1 if joint or option not in package | valued else 2
    return named, None
