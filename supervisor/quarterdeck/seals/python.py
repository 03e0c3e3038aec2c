"""The words of uv and pip for a resolution and an installation, and the reading of what they installed.  Pure.

Both installers end in the same bytes: wheels only, installed from a lock with hashes, without what names the installer
or its place.
"""

import csv
import hashlib
import io
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import msgspec

from .manifest import KEEP_RUNNER, RAISE_BOUND, Package, Program, SealError
from .request import PackageRequest, normal_name

SITE: Final = "site"
"""The folder of a tree that holds the packages."""

REQUIREMENTS: Final = "requirements.in"
LOCK: Final = "requirements.txt"
REPORT: Final = "report.json"
WHEELS_ONLY: Final = ("--only-binary", ":all:")  # else building a package runs its code
_COMPILER: Final = f"""\
import compileall, importlib.util, marshal, pathlib, py_compile
unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
compileall.compile_dir("{SITE}", stripdir="{SITE}", quiet=1, invalidation_mode=unchecked)
for path in pathlib.Path("{SITE}").rglob("*.py"):
    compiled = pathlib.Path(importlib.util.cache_from_source(path))
    try:
        marshal.loads(compiled.read_bytes()[16:])
    except EOFError:
        print(f"error: no space left for {{compiled}}")
    except (OSError, TypeError, ValueError):
        pass
"""
COMPILE: Final = ("-I", "-c", _COMPILER)
"""Arguments of Python that compile `SITE`, to files that name no place and are used as they are.

On a full disk many versions of Python leave a file that is cut, and end well: what was compiled is read again.
"""

UV_QUIET: Final = {
    "UV_NO_CONFIG": "1",
    "UV_NO_PROGRESS": "1",
    "UV_PYTHON_DOWNLOADS": "never",
    "UV_LINK_MODE": "hardlink",  # to its cache, which is removed before the seal is read
    "UV_HTTP_TIMEOUT": "30",
    "UV_HTTP_RETRIES": "2",
    "NO_COLOR": "1",
}
PIP_QUIET: Final = {
    "PIP_CONFIG_FILE": "/dev/null",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_NO_COLOR": "1",
    "PIP_PROGRESS_BAR": "off",
    "PIP_ROOT_USER_ACTION": "ignore",
    "PIP_DEFAULT_TIMEOUT": "30",
    "PIP_RETRIES": "2",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""Settings that keep them from reading files of the user's, and from saying more than they do."""

PROBE: Final = """\
import json, os, sys
libc = ""
try:
    libc = os.confstr("CS_GNU_LIBC_VERSION").split()[0]
except (ValueError, OSError, AttributeError):
    pass
base = getattr(sys, "_base_executable", "") or sys.executable
print(json.dumps({"executable": os.path.realpath(base), "tag": sys.implementation.cache_tag,
                  "version": "%d.%d.%d" % sys.version_info[:3], "libc": libc}))
"""
"""A program for an interpreter, which tells what it is; for every Python 3."""

FETCHED: Final = re.compile(r"^(?:Collecting | ?Downloading |\s*Prepared | \+ )", re.MULTILINE)

_DROPPED: Final = frozenset({"INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json"})
"""Of a `.dist-info`: who installed it, from where, and when."""

_BUILT: Final = re.compile(r"^\s*(?:Built |Building wheel for )([A-Za-z0-9._-]+)", re.MULTILINE)
_HEADER: Final = re.compile(r"^(Name|Version|License-Expression|License): *(.*)$", re.MULTILINE)
_ENTRY: Final = re.compile(r"([^=\s][^=]{0,200}?)\s*=\s*([A-Za-z_][\w.]{0,300})\s*:\s*([A-Za-z_][\w.]{0,300})")
_LOCKED: Final = re.compile(
    r"([A-Za-z0-9][\w.-]*)(?:\[[\w\s,.-]*\])?==[^\s;@/]+\s*(?:;[^#@]*?)?(?:\s+--hash=sha256:[0-9a-f]{64})+"
)
_FROM_INDEX: Final = re.compile(
    r"[A-Za-z0-9][\w.-]*(?:\[[\w\s,.-]*\])?\s*(?:[=<>~!][^;#@/\\\s]*(?:\s*,[^;#@/\\\s]*)*)?"
)


class Interpreter(msgspec.Struct, frozen=True):
    """A Python, as it says itself: its real path without an environment, and what packages for it depend on."""

    executable: str
    tag: str
    version: str
    libc: str = ""


DISTRIBUTION_FILES: Final = ("METADATA", "RECORD", "entry_points.txt")


class Distribution(msgspec.Struct, frozen=True):
    """The texts of an installed package's `DISTRIBUTION_FILES`; empty where there is none."""

    metadata: str
    record: str = ""
    entry_points: str = ""


def requirements_text(request: PackageRequest) -> str:
    """Return the requirements of what is asked for.  Raise SealError `unsealable` if one is not from an index."""
    lines = [request.package.removesuffix("@latest"), *request.beside]
    for line in lines:
        if not _FROM_INDEX.fullmatch(line.strip()):
            raise SealError("unsealable", f"{line[:200]!r} is not a package of an index", "")
    return "".join(f"{line}\n" for line in lines)


def resolve_words(uv: str, python: str, options: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that write `LOCK` by uv; `REPORT` by pip, where `uv` is empty."""
    if uv:
        words = (uv, "pip", "compile", "--generate-hashes", "--no-header", "--no-annotate", "--quiet", *options)
        return (*words, "--python", python, "--output-file", LOCK, REQUIREMENTS)
    words = (python, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--report", REPORT, *options)
    return (*words, "--requirement", REQUIREMENTS)


def install_words(uv: str, python: str, options: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that install `LOCK` into `SITE`, by uv, or by pip where `uv` is empty."""
    words = (uv, "pip", "install", "--python", python) if uv else (python, "-m", "pip", "install", "--no-compile")
    return (*words, "--require-hashes", "--no-deps", "--target", SITE, *options, "--requirement", LOCK)


class _Archive(msgspec.Struct):
    hashes: dict[str, str] = {}


class _Download(msgspec.Struct):
    archive_info: _Archive = msgspec.field(default_factory=_Archive)


class _Metadata(msgspec.Struct):
    name: str
    version: str


class _Install(msgspec.Struct):
    metadata: _Metadata
    download_info: _Download


class _Report(msgspec.Struct):
    install: list[_Install]


def lock_of_report(report: bytes) -> str:
    """Return pip's report of a resolution as a lock.  Raise SealError: `unsealable` if a package has no hash."""
    try:
        found = msgspec.json.decode(report, type=_Report)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SealError(
            "ended", f"pip's report cannot be read: {error}", "use pip 23 or newer, or install uv"
        ) from None
    lines = []
    for each in found.install:
        digest = each.download_info.archive_info.hashes.get("sha256", "")
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise SealError("unsealable", f"{each.metadata.name} has no hash: it does not come from an index", "")
        lines.append(f"{normal_name(each.metadata.name)}=={each.metadata.version} \\\n    --hash=sha256:{digest}\n")
    return "".join(sorted(lines))


def locked_names(lock: str) -> tuple[str, ...]:
    """Return the packages of a lock; raise SealError `unsealable` if a line is anything but a version with hashes."""
    names = []
    for line in lock.replace("\\\n", " ").splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LOCKED.fullmatch(line.strip())
        if found is None:
            raise SealError("unsealable", f"the lock has a line without a version and a hash: {line[:200]!r}", "")
        names.append(normal_name(found[1]))
    return tuple(names)


def is_dropped(path: str) -> bool:
    """Return whether a file of `SITE`, by its path in it, tells of the installer and not of a package."""
    folder, _, name = path.rpartition("/")
    return path == ".lock" or (folder.endswith(".dist-info") and "/" not in folder and name in _DROPPED)


def clean_record(record: str, kept_scripts: Collection[str]) -> str:
    """Return a RECORD in one order, without files that are dropped and scripts that are not kept."""
    rows = []
    for row in csv.reader(io.StringIO(record)):
        if not row or is_dropped(row[0]) or row[0].endswith(".pyc"):
            continue
        head, found, script = row[0].rpartition("bin/")
        if found and head in {"", "../../"}:
            if script in kept_scripts:
                rows.append([f"bin/{script}", *row[1:]])
        elif not row[0].startswith("../"):
            rows.append(row)
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(sorted(rows))
    return out.getvalue()


def keeps_script(head: bytes) -> bool:
    """Return whether a script that a wheel installs is kept: if its beginning names no interpreter of a place."""
    return not re.match(rb"#!\s*/(?!bin/sh|bin/bash|usr/bin/env)", head) and not re.match(
        rb"#![^\n]*\n(?:'''|\"true\" ''')exec", head
    )


def sealed_package(distribution: Distribution, built: Collection[str]) -> Package:
    """Return an installed package for the manifest; its hash is that of its clean RECORD."""
    headers = _headers(distribution.metadata)
    name = headers.get("Name", "")
    digest = hashlib.sha256(distribution.record.encode()).hexdigest()
    rows = csv.reader(io.StringIO(distribution.record))
    size = sum(int(row[2]) for row in rows if len(row) > 2 and row[2].isdecimal())
    license_ = headers.get("License-Expression") or headers.get("License", "")
    script = "built from source" if normal_name(name) in built else ""
    return Package(normal_name(name), headers.get("Version", ""), f"sha256:{digest}", size, license_[:100], script)


def built_names(output: str) -> frozenset[str]:
    """Return the packages that an installer says it has built."""
    return frozenset(normal_name(name.partition("==")[0]) for name in _BUILT.findall(output))


def programs_of(distribution: Distribution) -> Iterator[Program]:
    """Yield the scripts of an installed package."""
    name = normal_name(_headers(distribution.metadata).get("Name", ""))
    section = ""
    for line in distribution.entry_points.splitlines():
        if (found := re.fullmatch(r"\[([^\]]*)\]", line.strip())) is not None:
            section = found[1].strip()
        elif section in {"console_scripts", "gui_scripts"} and (entry := _ENTRY.match(line.strip())) is not None:
            yield Program(name, entry[1], f"{entry[2]}:{entry[3]}", ("python",))


def own_program(programs: Sequence[Program], package: str, asked: str) -> Program | None:
    """Return the program `asked` of a package, else the one that has the package's name, else its only one."""
    own = [program for program in programs if program.package == normal_name(package)]
    for candidates in (own, programs if asked else ()):
        if (found := next((each for each in candidates if each.name == (asked or package)), None)) is not None:
            return found
        similar = [each for each in candidates if normal_name(each.name) == normal_name(asked or package)]
        if len(similar) == 1:
            return similar[0]
    return own[0] if len(own) == 1 and not asked else None


def error_of(output: str, what: str) -> SealError:
    """Return what an installer's output says of a failure; `what` was to be done, such as `resolve server==1`."""
    text = " ".join(output.split())
    for pattern, code, remedy in _ERRORS:
        if re.search(pattern, text, re.IGNORECASE):
            return SealError(code, f"could not {what}: {_told(output)}", remedy)
    return SealError("ended", f"could not {what}: {_told(output)}", "")


def wanted_python(message: str) -> str:
    """Return the versions of Python that uv says are needed, such as `>=3.13`; empty if it says none."""
    found = re.search(r"does not satisfy Python\s*(>=[\d.]+(?:,\s*<[\d.]+)?)", message)
    return found[1].rstrip(".,") if found else ""


def _told(output: str) -> str:
    lines = [line.strip(" ╰─▶│├×") for line in output.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("WARNING", "Traceback", "[notice]", "hint:"))]
    errors = [line for line in lines if re.match(r"(?:error|caused?|because|and because)\b", line, re.IGNORECASE)]
    return " ".join(errors or lines[-3:])[:600] or "the installer said nothing"


_ERRORS: Final = (
    ("URL dependenc", "unsealable", KEEP_RUNNER),
    ("hash mismatch|do not match the hashes", "wrong_hash", "try again; if it stays, an index has changed the package"),
    (r"no space left|disk quota exceeded|os error 28\b", "no_space", "make room: quarterdeck seals collect"),
    (r"file too large|os error 27\b", "too_large", RAISE_BOUND),
    (
        "|".join(
            (
                "error sending request|connection refused|dns error|name resolution|timed out|failed to connect",
                "max retries|newconnectionerror|network is unreachable|failed to fetch|certificate|trusted or secure",
                r"connection (?:error|broken|aborted|reset)|\b50\d (?:internal|bad|service|gateway|server error)",
            )
        ),
        "registry_away",
        "check the network and the index that pip or uv is configured with, then try again",
    ),
    (r"\b40[13] |unauthorized|forbidden", "not_found", "check the login of the index"),
    (
        "does not satisfy python|requires-python|requires? a different python",
        "other_platform",
        "name an interpreter that fits with --python",
    ),
    (
        "no wheels (?:are available )?with a matching|not a supported wheel|not compatible with|platform tag",
        "other_platform",
        "seal it on this machine, or name another interpreter with --python",
    ),
    (
        "no usable wheels|building source distributions|has no wheels|no binary|requires? building|--no-build",
        "needs_scripts",
        "it is published as source only: seal it with --scripts to build it",
    ),
    (
        "not found in the|no versions? of|no matching distribution|not find a version|only .{0,300} available",
        "not_found",
        "check the package's name and version",
    ),
)
"""In order: what the output says, our code, and the remedy."""


def _headers(metadata: str) -> dict[str, str]:
    head = re.split(r"\r?\n\r?\n", metadata, maxsplit=1)[0]
    found: dict[str, str] = {}
    for name, value in _HEADER.findall(head):
        found.setdefault(name, value.strip())
    return found
