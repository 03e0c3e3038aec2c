"""The package that a command line asks a package runner for: read it, and write another version of it.  Pure.

A command line is pinned if it names one exact version, so that what starts tomorrow is what was tried today: `npx -y
@scope/server@1.2.3`, `uvx server==1.2.3`, `uvx --from server[cli]==1.2.3 run`, `pipx run server==1.2.3`.
"""

import re
import shlex
from collections.abc import Sequence
from enum import StrEnum
from pathlib import PurePath
from typing import Final

import msgspec

from quarterdeck_protocol.policy_values import MAX_SEAL_BYTES


class PackageIndex(StrEnum):
    """Where the versions of a package are listed."""

    NPM = "npm"
    PYPI = "PyPI"


VERSION: Final = re.compile(r"[0-9][0-9A-Za-z.+!_-]{0,63}")
"""An exact version of npm's or PyPI's; never an option, a path or a range."""

NPM_NAME: Final = re.compile(r"(?:@[a-z0-9~-][a-z0-9._~-]{0,127}/)?[A-Za-z0-9~-][A-Za-z0-9._~-]{0,127}")
PYPI_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")

_NPM_EXACT: Final = re.compile(r"\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]{1,48})?")
"""All three numbers: `1.2` is a range to npm."""

_NPM_SPEC: Final = re.compile(r"[0-9A-Za-z.+*^~<>=| _-]{0,128}")
_EXTRAS: Final = r"(?:\s*\[[\w\s,.-]{0,200}\])?"
_PYPI_SPEC: Final = re.compile(rf"(?P<name>[A-Za-z0-9][\w.-]*{_EXTRAS})\s*(?P<rest>[=<>~!@;].*)?")
_PYPI_EXACT: Final = re.compile(r"===?(?P<version>[0-9][0-9A-Za-z.+!_-]{0,63})")
_PYPI_RANGE: Final = re.compile(r"(?:^|,)(?:===?|~=|!=|<=?|>=?)[0-9A-Za-z.*+!_-]{1,64}(?=,|$)")


class PackageRequest(msgspec.Struct, frozen=True):
    """A package of an index that a runner is asked for.

    Attributes:
        runner: `npx`, `npm exec`, `bunx`, `pnpm dlx`, `uvx`, `uv tool run` or `pipx run`.
        name: as the command line spells it.
        spec: the versions that are asked for: empty for any, `1.2.3`, `^1`, `==1.2`, `latest`; never a URL or a path.
        extras: of a Python package, sorted: `server[cli]`.
        beside: further packages, each with its versions, that are installed with it.
        program: the program of the package that is asked for; empty for its own.
        python: the interpreter that uv or pipx is asked for.
        args: the server's own arguments.
        place: index of the argument that ends in the package; None if no argument names it.
        max_bytes: how large its tree may be, which no command line says.
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
    max_bytes: int = MAX_SEAL_BYTES

    @property
    def package(self) -> str:
        """The package with its extras and versions, as its index reads it."""
        if self.index is PackageIndex.NPM:
            return f"{self.name}@{self.spec}" if self.spec else self.name
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{self.name}{extras}{'@latest' if self.spec == 'latest' else self.spec}"

    @property
    def words(self) -> str:
        """The shortest command line that asks for the same installation: equal words can share one."""
        syntax = _SYNTAXES[self.runner]
        words = [*self.runner.split(), *(("--python", self.python) if self.python else ())]
        if self.program:
            words += [syntax.package[0], self.package]
        for each in self.beside:
            words += [syntax.beside[0], each]
        last = self.program or self.package
        return shlex.join([*words, *(("--",) if last.startswith("-") else ()), last])

    @property
    def version(self) -> str:
        """The one exact version that is asked for; empty if it is left to the index."""
        if self.index is PackageIndex.NPM:
            return self.spec if _NPM_EXACT.fullmatch(self.spec) else ""
        exact = _PYPI_EXACT.fullmatch(self.spec)
        return exact["version"] if exact else ""

    def is_of(self, name: str) -> bool:
        """Return whether `name` is the package's, in any spelling that its index reads."""
        if self.index is PackageIndex.NPM:
            return name == self.name
        return normal_name(name) == normal_name(self.name)


class Unsealable(msgspec.Struct, frozen=True):
    """A runner is asked for something that cannot be sealed.

    Attributes:
        why: a noun phrase, such as `a git repository` or `the option --with-editable`.
        request: the package, as far as the words tell it; without a place if they name no versions of an index.
    """

    why: str
    request: PackageRequest | None = None


def normal_name(name: str) -> str:
    """Return the one spelling of a Python package's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def program_of(command: str) -> str:
    """Return the name of the program that `command` starts."""
    return re.sub(r"\.(?:exe|cmd)$", "", PurePath(command).name)


def runner_of(command: str, args: Sequence[str]) -> str | None:
    """Return the tool whose package runner this command line starts, and which fetches what it runs; None for none."""
    found = _runner(command, args)
    return _RUNNERS[found][0] if found else None


def request_of(command: str, args: Sequence[str]) -> PackageRequest | Unsealable | None:
    """Return what `command` with `args` asks for; None if it is no package runner."""
    found = _runner(command, args)
    if found is None:
        return None
    _, runner = _RUNNERS[found]
    if not runner:
        return Unsealable(f"the runner {' '.join(found)}")
    line = _read(args, len(found) - 1, _SYNTAXES[runner], may_mix=runner == "npm exec")
    if line.package is None and not line.words:
        return Unsealable("a command line that names no package")
    return _request(runner, line)


def pin_of(command: str, args: Sequence[str]) -> PackageRequest | None:
    """Return the package that a command line names, whether it can be sealed or not; None if it names none that has
    versions to choose from, as a folder, a URL or an alias of npm's has not.
    """
    found = request_of(command, args)
    request = found.request if isinstance(found, Unsealable) else found
    return request if request is not None and request.place is not None else None


def pinned(args: Sequence[str], request: PackageRequest, version: str) -> list[str]:
    """Return the arguments with this version of the package, every other character unchanged.

    Raises:
        ValueError: it is not an exact version.
    """
    if not VERSION.fullmatch(version):
        raise ValueError(f"{version[:64]!r} is not an exact version")
    if request.index is PackageIndex.NPM:
        return _replaced(args, request, f"{request.name}@{version}")
    found = _PYPI_SPEC.fullmatch(_package_word(args, request)[1])
    assert found is not None
    # uvx reads both; what a person chose stays.
    sign = "@" if (found["rest"] or "").startswith("@") else "=="
    return _replaced(args, request, f"{found['name']}{sign}{version}")


def unversioned(args: Sequence[str], request: PackageRequest) -> list[str]:
    """Return the arguments with the bare name of the package."""
    return list(args) if request.place is None else _replaced(args, request, request.name)


def is_behind(version: str, latest: str) -> bool:
    """Return whether the latest version is another, and not an earlier one: a pinned pre-release may be ahead."""
    return version != latest and _numbers(version) <= _numbers(latest)


def _replaced(args: Sequence[str], request: PackageRequest, package: str) -> list[str]:
    assert request.place is not None
    return [*args[: request.place], _package_word(args, request)[0] + package, *args[request.place + 1 :]]


def _package_word(args: Sequence[str], request: PackageRequest) -> tuple[str, str]:
    """Return the word that names the package: its option with the sign behind it, if it is one word, and the rest."""
    assert request.place is not None
    word = args[request.place]
    before, sign, rest = word.partition("=")
    return (before + sign, rest) if word.startswith("-") else ("", word)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the release's numbers, without trailing zeros; the rest of a version is not compared."""
    release = re.match(r"[0-9]{1,9}(?:\.[0-9]{1,9})*", version.rpartition("!")[2])
    numbers = [int(part) for part in release[0].split(".")] if release else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


_RUNNERS: Final = {
    ("npx",): ("npm", "npx"),
    ("npm", "exec"): ("npm", "npm exec"),
    ("npm", "x"): ("npm", "npm exec"),
    ("bunx",): ("bun", "bunx"),
    ("bun", "x"): ("bun", "bunx"),
    ("pnpx",): ("pnpm", "pnpm dlx"),
    ("pnpm", "dlx"): ("pnpm", "pnpm dlx"),
    ("yarn", "dlx"): ("yarn", ""),
    ("uvx",): ("uv", "uvx"),
    ("uv", "run"): ("uv", ""),
    ("uv", "tool", "run"): ("uv", "uv tool run"),
    ("pipx", "run"): ("pipx", "pipx run"),
    ("deno", "run"): ("deno", ""),
}
"""By how each is called: the tool that fetches and keeps the packages, and the runner of a request, if it can be
sealed.
"""


def _runner(command: str, args: Sequence[str]) -> tuple[str, ...] | None:
    line = (program_of(command), *args[:2])
    return next((line[:count] for count in (1, 2, 3) if line[:count] in _RUNNERS), None)


class _Syntax(msgspec.Struct, frozen=True):
    """The options of a runner.

    Attributes:
        package: those that name the package.
        beside: those that name further packages.
        python: those that name an interpreter.
        harmless: those that change nothing of what is installed; with any other, nothing is sealed.
        valued: further options that a value follows, harmless or not.
    """

    index: PackageIndex
    package: tuple[str, ...]
    beside: tuple[str, ...]
    harmless: frozenset[str]
    valued: frozenset[str]
    python: tuple[str, ...] = ()


_NPM: Final = _Syntax(
    PackageIndex.NPM,
    package=("-p", "--package"),
    beside=("-p", "--package"),
    harmless=frozenset(
        """
        -y --yes -q --quiet -s --silent -d -dd --verbose --loglevel --ignore-existing --ignore-scripts --no-fund
        --no-audit --no-update-notifier --prefer-online --prefer-offline --no-progress
        """.split()  # noqa: SIM905 - as words they are read, as a list they are not
    ),
    valued=frozenset({"-c", "--call", "--registry", "--cache", "--prefix", "--userconfig", "-w", "--workspace"})
    | {"--loglevel"},
)
_UV: Final = _Syntax(
    PackageIndex.PYPI,
    package=("--from",),
    beside=("--with", "-w"),
    python=("--python", "-p"),
    harmless=frozenset(
        """
        -q --quiet -v --verbose -n --no-cache -U --upgrade --refresh --reinstall --isolated --no-progress
        --native-tls --cache-dir --color --link-mode --compile-bytecode --no-env-file
        """.split()  # noqa: SIM905
    ),
    valued=frozenset(
        """
        --with-editable --with-requirements --index-url -i --extra-index-url --index --default-index --find-links -f
        --cache-dir --constraints -c --overrides --directory --project --config-file --env-file --color
        --exclude-newer --resolution --prerelease --index-strategy --keyring-provider --allow-insecure-host
        --link-mode --refresh-package --upgrade-package -P --config-setting -C --build-constraints -b
        --python-platform
        """.split()  # noqa: SIM905
    ),
)
_PIPX: Final = _Syntax(
    PackageIndex.PYPI,
    package=("--spec",),
    beside=("--with",),
    python=("--python",),
    harmless=frozenset({"-q", "--quiet", "-v", "--verbose", "--no-cache", "--fetch-missing-python"}),
    valued=frozenset({"--pip-args", "--index-url", "-i", "--backend", "--fetch-python", "--lock-file"}),
)
_SYNTAXES: Final = {
    **dict.fromkeys(("npx", "npm exec", "bunx", "pnpm dlx"), _NPM),
    **dict.fromkeys(("uvx", "uv tool run"), _UV),
    "pipx run": _PIPX,
}


class _Line(msgspec.Struct):
    """A runner's command line, read.

    Attributes:
        package: value of the first option that names a package, with its place.
        words: the words that are no options of the runner: the package or program, with its place, and its arguments.
        strange: the first option that is not known to change nothing.
    """

    package: tuple[str, int] | None = None
    beside: list[str] = []
    words: list[tuple[str, int]] = []
    python: str = ""
    strange: str = ""


def _read(words: Sequence[str], place: int, syntax: _Syntax, *, may_mix: bool) -> _Line:
    """Read the words from `place` on; `may_mix` if options of the runner may stand behind the program."""
    line = _Line()
    while place < len(words) and (may_mix or not line.words):
        word = words[place]
        option, joint, value = word.partition("=")
        place += 1
        if word == "--":
            break
        if not word.startswith("-"):
            line.words.append((word, place - 1))
            continue
        if not joint and option in (*syntax.package, *syntax.beside, *syntax.python, *syntax.valued):
            value = words[place] if place < len(words) else ""
            place += 1
        if option in syntax.package and line.package is None:
            line.package = (value, place - 1) if value else None
        elif option in syntax.beside:
            line.beside.append(value)
        elif option in syntax.python:
            line.python = value
        elif option not in (*syntax.harmless, *syntax.package):
            line.strange = line.strange or f"the option {option}"
    line.words += [(word, at) for at, word in enumerate(words[place:], place)]
    return line


def _requirements(text: str) -> list[str]:
    """Return the Python packages of a list with commas: `a[x,y],b>=1,<2`."""
    parts = re.split(r",(?=\s*[A-Za-z])(?![^\[]*\])", text)
    return [part.strip() for part in parts if part.strip()]


def _request(runner: str, line: _Line) -> PackageRequest | Unsealable:
    index = _SYNTAXES[runner].index
    read, is_npm = (_npm_package, True) if index is PackageIndex.NPM else (_python_package, False)
    word, place = line.package or line.words[0]
    first = line.words[0][0] if line.words else ""
    name, extras, spec, why = read(word)
    if not name and first and not is_npm:
        # `--from git+https://…` names a place: the script most often has the package's name.
        name = read(first)[0]
    if not name:
        return Unsealable(why)
    beside = tuple(each for value in line.beside for each in ([value] if is_npm else _requirements(value)) if each)
    request = PackageRequest(
        runner,
        index,
        name,
        spec,
        extras=extras,
        beside=beside,
        program=first if line.package else "",
        python=line.python,
        args=tuple(word for word, _ in line.words[1:]),
        place=None if why else place,
    )
    no_program = "" if first else "a command line that names no program"
    problem = next(filter(None, (why, *(read(each)[3] for each in beside), line.strange, no_program)), "")
    return Unsealable(problem, request) if problem else request


def _npm_package(word: str) -> tuple[str, tuple[str, ...], str, str]:
    """Return a package's name, extras (npm knows none) and versions; and why, if it is no package of an index."""
    cut = word.find("@", 1)
    name, spec = (word, "") if cut < 0 else (word[:cut], word[cut + 1 :])
    if not NPM_NAME.fullmatch(name):
        return "", (), "", _kind_of(word)
    return (name, (), spec, "") if _NPM_SPEC.fullmatch(spec) else (name, (), "", _kind_of(spec))


def _python_package(word: str) -> tuple[str, tuple[str, ...], str, str]:
    found = _PYPI_SPEC.fullmatch(word)
    name, _, extras = (found["name"] if found else "").rstrip("] ").partition("[")
    if found is None or not PYPI_NAME.fullmatch(name.strip()) or name.endswith(".py"):
        return "", (), "", _kind_of(word)
    rest = re.sub(r"\s+", "", found["rest"] or "")
    if rest.startswith("@"):
        rest = "latest" if rest == "@latest" else f"=={rest[1:]}"
    told = tuple(sorted({each.strip() for each in extras.split(",") if each.strip()}))
    if rest in {"", "latest"} or not _PYPI_RANGE.sub("", rest):
        return name.strip(), told, rest, ""
    return name.strip(), told, "", "an environment marker" if ";" in rest else _kind_of(rest.lstrip("="))


def _kind_of(word: str) -> str:
    """Return what a word is that names no package of an index."""
    if re.match(r"[./~\\]|file:|[A-Za-z]:[\\/]", word):
        return "a path"
    if re.match(r"(?:git|hg|svn|bzr)\+|git:|git@|github:|gitlab:|bitbucket:|gist:|[\w.-]+/[\w.-]+(?:#.*)?$", word):
        return "a repository"
    if word.startswith("npm:"):
        return "an alias of npm's"
    if "://" in word:
        return "a URL"
    return "a path" if re.search(r"[/\\]|\.py$", word) else "a package or version that is not understood"
