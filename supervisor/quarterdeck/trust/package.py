"""The version of a package that a package runner has installed.

Nothing is run.  The runner's cache lies in the server's own home, which the server may write: reads are bounded, no
symbolic link is followed, and the answer is a hint for people, no proof of what runs.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath
from typing import Final

import msgspec

from quarterdeck.seals.request import PackageRequest, Unsealable, normal_name, program_of, request_of, runner_of
from quarterdeck_sandbox import HostileTree

MAX_CANDIDATES: Final = 200
"""Installations of one package, and environments of a cache, that are looked at."""

_PYTHON: Final = re.compile(r"python[\d.]{0,6}")
_VERSION: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+!_-]{0,63}")
_DIST_INFO: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,127})-([0-9A-Za-z][0-9A-Za-z.+!_]{0,63})\.dist-info")


def resolved_package(command: str, args: Sequence[str], home: Path) -> str | None:
    """Such as `mcp-server-time 2.2.0 (PyPI)`, None when it cannot be told; `home` is the server's.  Never raises."""
    try:
        runner = runner_of(command, args)
        if runner is None:
            return _venv(PurePath(command), args)
        request = _request(command, args)
        if request is None or runner not in _READ:
            return None
        with HostileTree(home) as tree:
            return _READ[runner](tree, request)
    except (OSError, ValueError):
        return None


def _request(command: str, args: Sequence[str]) -> PackageRequest | None:
    asked = request_of(command, args)
    return asked.request if isinstance(asked, Unsealable) else asked


def has_to_install(command: str, args: Sequence[str], home: Path) -> bool:
    """Whether this command line fetches a package that is not in the server's home yet.  Never raises."""
    runner = runner_of(command, args)
    if runner is None:
        return False
    if runner in _READ and _request(command, args) is not None:
        return resolved_package(command, args, home) is None
    try:
        with HostileTree(home) as tree:
            return not any(tree.names(*place) for place in _CACHES[runner])
    except (OSError, ValueError):
        return True


_CACHES: Final = {
    "npm": ((".npm", "_npx"),),
    "bun": ((".bun", "install", "cache"),),
    "pnpm": ((".cache", "pnpm"), (".local", "share", "pnpm")),
    "yarn": ((".yarn", "berry", "cache"), (".cache", "yarn")),
    "uv": ((".cache", "uv"),),
    "pipx": ((".cache", "pipx"), (".local", "pipx", ".cache"), (".local", "share", "pipx")),
    "deno": ((".cache", "deno"),),
}
"""Where each keeps what it fetched, below the home."""


class _NpxMark(msgspec.Struct):
    packages: list[str] = []


class _PackageFile(msgspec.Struct):
    version: str = ""
    npx: _NpxMark = msgspec.field(name="_npx", default_factory=_NpxMark)


def _package_file(data: bytes | None) -> _PackageFile:
    try:
        return msgspec.json.decode(data or b"{}", type=_PackageFile)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _PackageFile()


def _npm(tree: HostileTree, request: PackageRequest) -> str | None:
    """Return the version npx installed: in the directory made for this very request, else the newest."""
    found: list[tuple[bool, float, str]] = []
    for cache in tree.names(".npm", "_npx")[:MAX_CANDIDATES]:
        root = (".npm", "_npx", cache)
        package = _package_file(tree.read(*root, "node_modules", *request.name.split("/"), "package.json"))
        if not _VERSION.fullmatch(package.version):
            continue
        asked = _package_file(tree.read(*root, "package.json")).npx.packages
        found.append((request.package in asked, tree.changed_at(*root, "node_modules"), package.version))
    return f"{request.name} {max(found)[2]} (npm)" if found else None


def _uv(tree: HostileTree, request: PackageRequest) -> str | None:
    caches = [(".cache", "uv", name) for name in tree.names(".cache", "uv") if name.startswith("archive-v")]
    places = _newest(tree, caches)
    return _in_environments(tree, places, request.name) or _distribution(tree, places, request.name)


def _pipx(tree: HostileTree, request: PackageRequest) -> str | None:
    return _in_environments(tree, _newest(tree, _CACHES["pipx"]), request.name)


_READ: Final = {"npm": _npm, "uv": _uv, "pipx": _pipx}
"""The runners whose caches tell versions."""


def _newest(tree: HostileTree, caches: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    places = [(*cache, entry) for cache in caches for entry in tree.names(*cache)]
    return sorted(places, key=lambda place: tree.changed_at(*place), reverse=True)[:MAX_CANDIDATES]


def _in_environments(tree: HostileTree, places: Iterable[tuple[str, ...]], wanted: str) -> str | None:
    found = (_distribution(tree, _site_packages(tree, *place), wanted) for place in places)
    return next((each for each in found if each is not None), None)


def _venv(command: PurePath, args: Sequence[str]) -> str | None:
    """Return the version of a module or script of the environment that the program lies in."""
    if not command.is_absolute():
        return None
    program, words = program_of(command.name), list(args)
    is_module = _PYTHON.fullmatch(program) is not None
    if is_module and "-m" not in words[:-1]:
        return None
    name = words[words.index("-m") + 1] if is_module else program
    with HostileTree(Path(command.parent.parent)) as tree:
        if tree.read("pyvenv.cfg") is None:
            return None
        places = _site_packages(tree)
        if (found := _distribution(tree, places, name)) is not None:
            return found
        for place in places:
            for each in tree.names(*place):
                # Of a module, the list of what stands at the top; of a script, that of the scripts.
                if _DIST_INFO.fullmatch(each) and _provides(tree, (*place, each), name, is_module=is_module):
                    return _told(tree, (*place, each))
    return None


def _site_packages(tree: HostileTree, *root: str) -> list[tuple[str, ...]]:
    pythons = [name for name in tree.names(*root, "lib") if name.startswith("python")]
    return [(*root, "lib", python, "site-packages") for python in pythons]


def _distribution(tree: HostileTree, places: Iterable[tuple[str, ...]], wanted: str) -> str | None:
    for place in places:
        for name in tree.names(*place):
            found = _DIST_INFO.fullmatch(name)
            if found is not None and normal_name(found[1]) == normal_name(wanted):
                return _told(tree, (*place, name))
    return None


def _provides(tree: HostileTree, place: tuple[str, ...], name: str, *, is_module: bool) -> bool:
    if is_module:
        top = (tree.read(*place, "top_level.txt") or b"").decode("utf-8", "replace").split()
        return name.split(".", maxsplit=1)[0] in top
    entries = (tree.read(*place, "entry_points.txt") or b"").decode("utf-8", "replace")
    return any(line.partition("=")[0].strip() == name for line in entries.splitlines() if "=" in line)


def _told(tree: HostileTree, place: tuple[str, ...]) -> str | None:
    found = _DIST_INFO.fullmatch(place[-1])
    if found is None:
        return None
    origin = "PyPI" if tree.read(*place, "direct_url.json") is None else "a URL or a directory"
    return f"{normal_name(found[1])} {found[2]} ({origin})"
