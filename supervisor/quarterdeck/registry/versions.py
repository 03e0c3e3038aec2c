"""Ask npm, uv or pip for the latest version of a package.

The programs themselves are called, as the user would: they know the user's mirrors, proxies, certificates and logins,
and install the version that they name.  None builds or runs a package to answer.  They run where no project's settings
are, each with a deadline, and their output is bounded before it is read.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from quarterdeck.common.words import clipped, flat
from quarterdeck.seals.request import VERSION, PackageIndex, PackageRequest

ASK_S: Final = 60.0
"""npm tries thrice; a mirror may fetch the package first."""

MAX_ANSWER_BYTES: Final = 256 * 1024
AT_A_TIME: Final = 4
_SHOWN_CHARS: Final = 200


class VersionError(Exception):
    """The latest version is unknown: why, and what to do."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


def latest_versions(pins: Iterable[PackageRequest]) -> list[str | VersionError]:
    """Return the latest version of each package, or why it is unknown, in their order."""

    def latest(pin: PackageRequest) -> str | VersionError:
        try:
            return latest_version(pin)
        except VersionError as error:
            return error

    with ThreadPoolExecutor(AT_A_TIME) as threads:
        return list(threads.map(latest, pins))


def latest_version(pin: PackageRequest) -> str:
    """Return the version that an unpinned start would get today.  Raises `VersionError` if it is unknown."""
    answer = _of_npm(pin.name) if pin.index is PackageIndex.NPM else _of_pypi(pin.name)
    if not VERSION.fullmatch(answer):
        raise VersionError(f"{pin.name}: {flat(clipped(answer, 64))!r} is no version", "pin a version by hand")
    return answer


@dataclass(frozen=True, slots=True)
class _Said:
    text: str
    is_answer: bool


def _of_npm(name: str) -> str:
    said = _ask(["npm", "view", "--json", "--", name, "version"], name, errors=False)
    try:
        value = json.loads(said.text)
    except (ValueError, RecursionError):
        value = None
    match value:
        case str() if said.is_answer:
            return value
        case {"error": {"code": "E404"}}:
            raise VersionError(f"npm's registry has no package {name}", "check its name: npm view NAME")
        case {"error": {"summary": str(summary)}}:
            raise VersionError(_told("npm", name, summary), f"see npm view {name}")
    raise VersionError(_told("npm", name, said.text), f"see npm view {name}")


def _of_pypi(name: str) -> str:
    if shutil.which("uv"):
        # As uvx would choose it: with the user's indexes, and for an interpreter of theirs.
        words = ["uv", "pip", "compile", "-", "--no-deps", "--no-build", "--no-header", "--no-annotate", "--quiet"]
        said = _ask(words, name, question=name)
        found = re.search(rf"(?mi)^{_spelt(name)}==(\S+)", said.text)
    else:
        said = _ask([sys.executable, "-m", "pip", "index", "versions", name], name)
        found = re.search(rf"(?mi)^{_spelt(name)} \((\S+)\)", said.text)
    if found is None or not said.is_answer:
        raise VersionError(_told("PyPI", name, said.text), f"see uv pip compile, or pip index versions {name}")
    return found[1]


def _spelt(name: str) -> str:
    """Return a pattern for any spelling of a distribution's name (PEP 503)."""
    return "[-_.]+".join(map(re.escape, re.split(r"[-_.]+", name)))


def _told(index: str, name: str, text: str) -> str:
    lines = [line.strip(" ×╰─▶│\t") for line in text.splitlines()]
    line = next((line for line in reversed(lines) if line), "")
    return f"{index} does not say which version of {name} is the latest" + (
        f": {flat(clipped(line, _SHOWN_CHARS))}" if line else ""
    )


def _ask(words: Sequence[str], name: str, *, question: str = "", errors: bool = True) -> _Said:
    """Return a program's output, with its stderr if `errors`.  Raises `VersionError` if there is no such program, or it
    does not end.
    """
    program = shutil.which(words[0])
    if program is None:
        raise VersionError(f"{words[0]} is not on PATH: nobody can be asked for {name}", f"install {words[0]}")
    with tempfile.TemporaryFile() as answer:
        try:
            done = subprocess.run(
                [program, *words[1:]],
                input=question.encode(),
                stdout=answer,
                stderr=answer if errors else subprocess.DEVNULL,
                timeout=ASK_S,
                cwd="/",  # no project's .npmrc or uv.toml is there
                env={**os.environ, "npm_config_update_notifier": "false", "NO_COLOR": "1"},
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise VersionError(f"{words[0]} did not say within {ASK_S:.0f} s", "try again later") from None
        answer.seek(0)
        text = answer.read(MAX_ANSWER_BYTES).decode("utf-8", "replace")
    return _Said(text, done.returncode == 0)
