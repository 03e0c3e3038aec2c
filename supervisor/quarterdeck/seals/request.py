"""The package that a command line asks a package runner for: read it, and write another version of it.  Pure."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec


class PackageIndex(StrEnum):
    """Where the versions of a package are listed."""

    NPM = "npm"
    PYPI = "PyPI"


class PackageRequest(msgspec.Struct, frozen=True):
    """A package of an index that a runner is asked for.

    Attributes:
        runner: `npx`, `npm exec`, `bunx`, `pnpm dlx`, `uvx`, `uv tool run` or `pipx run`.
        name: as the command line spells it.
        spec: the versions that are asked for: empty for any, `1.2.3`, `^1`, `==1.2`, `latest`; never a URL or a path.
        extras: of a Python package: `server[cli]`.
        beside: further packages, each with its versions, that are installed with it.
        program: the program of the package that is asked for; empty for its own.
        python: the interpreter that uv or pipx is asked for.
        args: the server's own arguments.
        place: index of the argument that ends in the package; None if no argument names it.
    """

    runner: str
    index: PackageIndex
    name: str
    spec: str
    extras: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    program: str = ""
    python: str = ""
    args: tuple[str, ...] = ()
    place: int | None = None

    @property
    def words(self) -> str:
        """A stable text of everything but the server's arguments."""
        raise NotImplementedError


class Unsealable(msgspec.Struct, frozen=True):
    """A runner is asked for something that cannot be sealed.

    Attributes:
        why: a noun phrase, such as `a git URL` or `the option --with-editable`.
        request: the package, as far as the words tell it.
    """

    why: str
    request: PackageRequest | None = None


def request_of(command: str, args: Sequence[str]) -> PackageRequest | Unsealable | None:
    """Return what `command` with `args` asks for; None if it is no package runner."""
    raise NotImplementedError
