"""The package that a command line asks a package runner for, and the word of it that names the package.  Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import PurePath
from typing import Final


class Ecosystem(StrEnum):
    """Where a package is looked for."""

    NPM = "npm"
    UV = "uv"
    PIPX = "pipx"
    VENV = "venv"


@dataclass(frozen=True, slots=True)
class Request:
    """A requested package, or a module or script of it; `spec` has its versions, `place` is the argument that ends in
    it.
    """

    ecosystem: Ecosystem
    name: str
    spec: str
    is_module: bool = False
    place: int | None = field(default=None, compare=False)


def request_of(command: str, args: Sequence[str]) -> Request | None:
    """What `command` with `args` asks for; None when it is no runner that is known, or names a place and no package."""
    program = _program_of(command)
    words = list(args)
    match program, words[:2]:
        case "npx", _:
            return _npm_request(words)
        case "npm", ["exec" | "x", *_]:
            return _moved(_npm_request(words[1:]), 1)
        case "uvx", _:
            return _uv_request(words)
        case "uv", ["tool", "run"]:
            return _moved(_uv_request(words[2:]), 2)
        case "pipx", ["run", *_]:
            return _moved(_pipx_request(words[1:]), 1)
    if _PYTHON.fullmatch(program):
        module = words[words.index("-m") + 1 : words.index("-m") + 2] if "-m" in words else []
        return Request(Ecosystem.VENV, module[0], module[0], is_module=True) if module else None
    return Request(Ecosystem.VENV, program, program) if PurePath(command).is_absolute() else None


def runner_of(command: str, args: Sequence[str]) -> str | None:
    """The package runner that this command line starts, which fetches what it runs; None when it is none."""
    line = (_program_of(command), *args[:2])
    return next((_RUNNERS[line[:count]] for count in (1, 2, 3) if line[:count] in _RUNNERS), None)


def _program_of(command: str) -> str:
    return re.sub(r"\.(?:exe|cmd)$", "", PurePath(command).name)


def _moved(request: Request | None, words: int) -> Request | None:
    if request is None or request.place is None:
        return request
    return replace(request, place=request.place + words)


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
NPM_NAME: Final = re.compile(r"(?:@[a-z0-9~-][a-z0-9._~-]{0,127}/)?[A-Za-z0-9~-][A-Za-z0-9._~-]{0,127}")
PYPI_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")

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
_PIPX_VALUED: Final = frozenset(
    {"--python", "--pip-args", "--index-url", "-i", "--with", "--backend", "--fetch-python", "--lock-file"}
)


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    place: int


def _npm_request(words: list[str]) -> Request | None:
    package, first = _options(words, _NPM_VALUED, frozenset({"-p", "--package"}))
    word = package or first
    if word is None:
        return None
    cut = word.text.find("@", 1)
    name = word.text if cut < 0 else word.text[:cut]
    return Request(Ecosystem.NPM, name, word.text, place=word.place) if NPM_NAME.fullmatch(name) else None


def _uv_request(words: list[str]) -> Request | None:
    package, first = _options(words, _UV_VALUED, frozenset({"--from"}))
    return _python_request(Ecosystem.UV, package, first)


def _pipx_request(words: list[str]) -> Request | None:
    package, first = _options(words, _PIPX_VALUED, frozenset({"--spec"}))
    return _python_request(Ecosystem.PIPX, package, first)


def _python_request(ecosystem: Ecosystem, package: _Word | None, first: _Word | None) -> Request | None:
    for word in (package, first):
        # `--from git+https://…` names a place: the script most often has the package's name.
        found = PYPI_NAME.match(word.text) if word is not None else None
        if (
            word is not None
            and found
            and not re.match(r"\w+\+|\w+://|.*[/\\]", word.text)
            and word.text[found.end() :].lstrip()[:1] in _AFTER_NAME
        ):
            return Request(ecosystem, found[0], word.text, place=word.place if word is (package or first) else None)
    return None


_AFTER_NAME: Final = ("", "[", "=", "<", ">", "~", "!", "@", ";")


def _options(words: list[str], valued: frozenset[str], package: frozenset[str]) -> tuple[_Word | None, _Word | None]:
    named: _Word | None = None
    place = 0
    while place < len(words):
        word = words[place]
        option, joint, value = word.partition("=")
        if word == "--":
            return named, _Word(words[place + 1], place + 1) if place + 1 < len(words) else None
        if option in package:
            given = _Word(value, place) if joint else None
            if not joint and place + 1 < len(words):
                given = _Word(words[place + 1], place + 1)
            named = named or given
        elif not word.startswith("-"):
            return named, _Word(word, place)
        place += 1 if joint or option not in package | valued else 2
    return named, None
