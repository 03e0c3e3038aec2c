"""The version of a package in a server's command line: read it, and write another.  Pure.

A command line is pinned if it names one exact version, so that what starts tomorrow is what was tried today: `npx -y
@scope/server@1.2.3`, `uvx server==1.2.3`, `uvx --from server[cli]==1.2.3 run`, `pipx run server==1.2.3`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from quarterdeck.trust.package_request import Ecosystem, request_of

VERSION: Final = re.compile(r"[0-9][0-9A-Za-z.+!_-]{0,63}")
"""An exact version of npm's or PyPI's; never an option, a path or a range."""

_NPM_EXACT: Final = re.compile(r"\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]{1,48})?")
"""All three numbers: `1.2` is a range to npm."""

_EXTRAS: Final = r"(?:\s*\[[\w\s,.-]{0,200}\])?"
_PYPI_SPEC: Final = re.compile(rf"(?P<name>[A-Za-z0-9][\w.-]*{_EXTRAS})\s*(?P<rest>[=<>~!@].*)?")
_PYPI_EXACT: Final = re.compile(r"(?:===?|@)\s*(?P<version>[0-9][0-9A-Za-z.+!_-]{0,63})")


class PackageIndex(StrEnum):
    """Where the versions of a package are listed."""

    NPM = "npm"
    PYPI = "PyPI"


@dataclass(frozen=True, slots=True)
class Pin:
    """The package of a command line; `version` is the one exact version that it names, or empty.

    `text` is the word, or the end of one, that names it, `place` the index of that argument.
    """

    index: PackageIndex
    name: str
    version: str
    text: str
    place: int

    def is_of(self, name: str) -> bool:
        """Return whether `name` is the package's, in any spelling that its index reads (PEP 503)."""
        if self.index is PackageIndex.NPM:
            return name == self.name
        return re.sub(r"[-_.]+", "-", name).lower() == re.sub(r"[-_.]+", "-", self.name).lower()

    def at(self, version: str) -> str:
        """Return the word with this version.  Raises `ValueError` if it is no exact version."""
        if not VERSION.fullmatch(version):
            raise ValueError(f"{version[:64]!r} is not an exact version")
        if self.index is PackageIndex.NPM:
            return f"{self.name}@{version}"
        found = _PYPI_SPEC.fullmatch(self.text)
        assert found is not None
        # uvx reads both; what a person chose stays.
        sign = "@" if (found["rest"] or "").startswith("@") else "=="
        return f"{found['name']}{sign}{version}"


def pin_of(command: str, args: Sequence[str]) -> Pin | None:
    """Return the package that a command line names, and its version; None if it names none that can be pinned.

    A folder, a URL or an alias of npm's is no package of an index, and has no versions to choose from.
    """
    request = request_of(command, args)
    if request is None or request.place is None:
        return None
    if request.ecosystem is Ecosystem.NPM:
        asked = request.spec[len(request.name) + 1 :]
        if re.search(r"[:/\\]", asked):
            return None
        version = asked if _NPM_EXACT.fullmatch(asked) else ""
        return Pin(PackageIndex.NPM, request.name, version, request.spec, request.place)
    found = _PYPI_SPEC.fullmatch(request.spec)
    rest = (found["rest"] or "").strip() if found is not None else ""
    if found is None or re.search(r"[:/\\;]", rest):
        return None
    exact = _PYPI_EXACT.fullmatch(rest)
    return Pin(PackageIndex.PYPI, request.name, exact["version"] if exact else "", request.spec, request.place)


def pinned(args: Sequence[str], pin: Pin, version: str) -> list[str]:
    """Return the arguments with this version of the package, every other character unchanged.  Raises `ValueError` if
    it is no exact version.
    """
    words = list(args)
    words[pin.place] = words[pin.place].removesuffix(pin.text) + pin.at(version)
    return words


def is_behind(version: str, latest: str) -> bool:
    """Return whether the latest version is another, and not an earlier one: a pinned pre-release may be ahead."""
    return version != latest and _numbers(version) <= _numbers(latest)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the release's numbers, without trailing zeros; the rest of a version is not compared."""
    release = re.match(r"[0-9]{1,9}(?:\.[0-9]{1,9})*", version.rpartition("!")[2])
    numbers = [int(part) for part in release[0].split(".")] if release else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
