"""npm's words for a resolution and an installation, and the reading of its lock, packages and errors.  Pure."""

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from .manifest import KEEP_RUNNER, RAISE_BOUND, Package, Program, SealError
from .request import PackageRequest

QUIET: Final = {
    "npm_config_audit": "false",
    "npm_config_fund": "false",
    "npm_config_update_notifier": "false",
    "npm_config_progress": "false",
    "npm_config_color": "false",
    "npm_config_loglevel": "http",  # a line for each answer of the registry: the progress
    "npm_config_logs_max": "0",
    "npm_config_engine_strict": "false",
    "npm_config_fetch_retries": "2",
    "npm_config_fetch_retry_mintimeout": "500",
    "npm_config_fetch_retry_maxtimeout": "4000",
}
"""Settings that keep npm from asking for more than the packages, and from saying more than it does."""

RESOLVE: Final = ("npm", "install", "--package-lock-only", "--ignore-scripts")
INSTALL: Final = ("npm", "ci", "--ignore-scripts", "--prefer-offline")
INSTALL_WITH_SCRIPTS: Final = ("npm", "ci", "--ignore-scripts=false", "--prefer-offline")

NO_PLACE: Final = ".package-lock.json"
"""A file in `node_modules` that npm keeps for itself; its form depends on npm's version."""

FETCHED: Final = re.compile(r"http fetch GET 200 \S+\.tgz")
"""A line of npm's output for each package that it has fetched."""

_TAG: Final = re.compile(r"(?![vVxX][\dxX.*-]*$)[A-Za-z][\w.-]*")
"""Matches the tag of a version, such as `latest`, and no range of versions."""

_SCRIPTS: Final = ("preinstall", "install", "postinstall")
_CODE: Final = re.compile(r"^npm (?:error|ERR!) code (\S{1,60})", re.MULTILINE)
_LINE: Final = re.compile(r"^npm (?:error|ERR!) (?!code |errno |syscall |A complete log|\s*/)(.*\S)", re.MULTILINE)


class LockedPackage(msgspec.Struct, rename="camel"):
    """One package of a lock."""

    version: str = ""
    name: str = ""
    integrity: str = ""
    license: object = ""
    link: bool = False
    in_bundle: bool = False
    has_install_script: bool = False
    dependencies: dict[str, str] = {}
    optional_dependencies: dict[str, str] = {}


class _Lock(msgspec.Struct, rename="camel"):
    lockfile_version: int
    packages: dict[str, LockedPackage]


class PackageFile(msgspec.Struct):
    """What a package's own `package.json` says of its programs and scripts."""

    name: str = ""
    version: str = ""
    bin: object = None
    directories: object = None
    scripts: object = None
    license: object = ""

    @property
    def install_script(self) -> str:
        """The scripts that npm would run at an installation, such as `postinstall`; empty for none."""
        scripts = self.scripts if isinstance(self.scripts, dict) else {}
        return ", ".join(name for name in _SCRIPTS if isinstance(scripts.get(name), str) and scripts[name].strip())

    @property
    def bin_folder(self) -> str:
        """The folder whose files are the programs, if `bin` names none; empty if there is none."""
        folder = self.directories.get("bin") if isinstance(self.directories, dict) else None
        return _inside(folder) if self.bin is None and isinstance(folder, str) else ""


def dependencies_of(request: PackageRequest, locked: Mapping[str, LockedPackage] = {}) -> dict[str, str]:
    """Return the packages that are asked for, each with its versions; with a lock, the locked ones for tags."""
    wanted = {request.name: request.spec or "*"}
    for word in request.beside:
        cut = word.find("@", 1)
        wanted[word if cut < 0 else word[:cut]] = "*" if cut < 0 else word[cut + 1 :]
    versions = {folder: package.version for folder, package in locked.items()}
    return {name: _settled_spec(spec, versions.get(f"node_modules/{name}", "")) for name, spec in wanted.items()}


def package_text(wanted: Mapping[str, str]) -> str:
    """Return the `package.json` of an installation of these packages."""
    return msgspec.json.encode({"name": "sealed", "version": "0.0.0", "private": True, "dependencies": wanted}).decode()


def read_lock(text: str) -> dict[str, LockedPackage]:
    """Return the packages of a lock by their folders, relative to the tree, in order.

    Raise SealError `unsealable` if one of them is not an archive with a hash, `ended` if it is no lock that is known.
    """
    try:
        lock = msgspec.json.decode(text, type=_Lock)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SealError("ended", f"npm's lock cannot be read: {error}", "use another version of npm") from None
    if lock.lockfile_version not in {2, 3}:
        raise SealError("ended", f"npm's lock has the version {lock.lockfile_version}, not 3", "use a current npm")
    lock.packages.pop("", None)
    for folder, package in lock.packages.items():
        if not re.fullmatch(r"(?:node_modules/(?:@[^/]+/)?[^/@][^/]*/?)+", folder + "/") or "/../" in folder:
            raise SealError("hostile_tree", f"the lock installs to {folder[:200]!r}, outside of the tree")
        package.name = package.name or folder.rpartition("node_modules/")[2]
        if package.link or not (package.integrity or package.in_bundle):
            why = "is a folder of this machine" if package.link else "has no hash: it comes from git or from a URL"
            raise SealError("unsealable", f"{package.name} {why}", KEEP_RUNNER)
    return dict(sorted(lock.packages.items()))


def settled_lock(text: str, *, with_addresses: bool = False) -> str:
    """Return a lock that `read_lock` has read as `npm ci` installs it, without asking the registry what fits.

    A tag is replaced by the version that it stood for, and an optional package that the registry did not have, as of a
    platform that is not published yet, is not named.  Without addresses, which may hold logins, other mirrors do.
    """
    lock = msgspec.json.decode(text)
    packages = lock["packages"]
    for folder, entry in packages.items():
        if not with_addresses:
            entry.pop("resolved", None)
        for kind in ("dependencies", "optionalDependencies"):
            specs = entry.pop(kind, {})
            found = {name: _locked_version(packages, folder, name) for name in specs}
            kept = [name for name in specs if found[name] or kind == "dependencies"]
            if kept:
                entry[kind] = {name: _settled_spec(specs[name], found[name]) for name in kept}
    lock.pop("dependencies", None)  # the same for npm 6, which version 3 does without
    return msgspec.json.format(msgspec.json.encode(lock), indent=1).decode() + "\n"


def _locked_version(packages: Mapping[str, Mapping[str, str]], folder: str, name: str) -> str:
    """Return the version that a package finds of another one as Node looks, from its own folder up; empty for none."""
    above = f"{folder}/" if folder else ""
    while f"{above}node_modules/{name}" not in packages:
        if not above:
            return ""
        above = above.rpartition("node_modules/")[0]
    return packages[f"{above}node_modules/{name}"].get("version", "")


def _settled_spec(spec: str, version: str) -> str:
    """Return the version for a tag, of which a lock cannot tell whether it still stands for that; else `spec`."""
    return version if version and _TAG.fullmatch(spec) else spec


def read_package_file(data: bytes | None) -> PackageFile:
    """Return the content of a `package.json`; empty if that cannot be read."""
    try:
        return msgspec.json.decode(data or b"{}", type=PackageFile)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return PackageFile()


def sealed_package(locked: LockedPackage, file: PackageFile, size: int) -> Package:
    """Return an installed package for the manifest."""
    # npm marks what `binding.gyp` alone makes it build, too.
    script = file.install_script or ("built from source" if locked.has_install_script else "")
    license_ = license_of(locked.license) or license_of(file.license)
    return Package(locked.name, locked.version, locked.integrity, size, license_, script)


def bins_of(file: PackageFile, in_folder: Sequence[str] = ()) -> dict[str, str]:
    """Return the programs of a package, as name and path in its folder; `in_folder` are the files of `bin_folder`.

    A path that leaves the package is read as npm reads it: within the package.
    """
    if file.bin_folder:
        return {name: f"{file.bin_folder}/{name}" for name in in_folder if not name.startswith(".")}
    bins = {file.name.rpartition("/")[2]: file.bin} if isinstance(file.bin, str) else file.bin
    if not isinstance(bins, dict):
        return {}
    named = {posixpath.basename(str(name)): _inside(path) for name, path in bins.items() if isinstance(path, str)}
    return {name: path for name, path in named.items() if name not in {"", ".", ".."} and path}


def own_program(programs: Sequence[Program], package: str) -> Program | None:
    """Return the program that `npx PACKAGE` runs; None if it could not tell (npm's own rule).

    Source: libnpmexec, get-bin-from-manifest.js.
    """
    own = [program for program in programs if program.package == package]
    if own and len({program.target for program in own}) == 1:
        return own[0]
    return next((program for program in own if program.name == package.rpartition("/")[2]), None)


def words_of_first_line(head: bytes, path: str) -> tuple[str, ...]:
    """Return the words before a program's path that start it: `node` with its options; none if it starts by itself."""
    line = head.split(b"\n", 1)[0].decode(errors="replace").strip()
    if not line.startswith("#!"):
        is_binary = head.startswith((b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"))
        return () if is_binary or posixpath.splitext(path)[1] in {".sh", ".py"} else ("node",)
    words = line[2:].split()
    while words and (posixpath.basename(words[0]) == "env" or words[0] in {"-S", "--split-string"}):
        words.pop(0)
    return ("node", *words[1:]) if words and posixpath.basename(words[0]) in {"node", "nodejs"} else ()


def error_of(output: str, what: str) -> SealError:
    """Return what npm's output says of a failure; `what` was to be done, such as `resolve server@1`."""
    found = _CODE.search(output)
    code = found[1] if found else ""
    line = next(iter(_LINE.findall(output)), "") or (output.strip().splitlines() or ["npm said nothing"])[-1]
    known = ((kind, remedy) for codes, kind, remedy in _ERRORS if re.fullmatch(codes, code))
    kind, remedy = next(known, ("ended", ""))
    return SealError(kind, f"npm could not {what}: {f'{code}: ' if code else ''}{line[:400]}", remedy)


_ERRORS: Final = (
    ("E404|ETARGET|ENOVERSIONS|EINVALID(PACKAGE|TAG)NAME", "not_found", "check the package's name and version"),
    (
        "E401|E403|ENEEDAUTH|EOTP",
        "not_found",
        "log in to the registry with npm login, or check the token in your .npmrc",
    ),
    (
        "|".join(
            (
                "ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|EHOSTUNREACH|ENETUNREACH|EPROTO|ETIMEDOUT|FETCH_ERROR",
                "ERR_SOCKET_TIMEOUT|EIDLETIMEOUT|ECONNECTIONTIMEOUT|E429|E5[0-9][0-9]|CERT_HAS_EXPIRED",
                "ERR_TLS_CERT_ALTNAME_INVALID|SELF_SIGNED_CERT_IN_CHAIN|DEPTH_ZERO_SELF_SIGNED_CERT",
                "UNABLE_TO_(VERIFY_LEAF_SIGNATURE|GET_ISSUER_CERT_LOCALLY)",
            )
        ),
        "registry_away",
        "check the network and the registry in your .npmrc, then try again",
    ),
    ("128|EALLOW(GIT|REMOTE|FILE|DIRECTORY)", "unsealable", f"it comes from git, a URL or a folder: {KEEP_RUNNER}"),
    ("EINTEGRITY", "wrong_hash", "try again; if it stays, the registry or a mirror has changed the package"),
    ("EBADPLATFORM", "other_platform", "seal it on this machine"),
    ("EUSAGE", "ended", "the lock was made for another version of the row: seal it again without it"),
    ("ENOSPC|EDQUOT", "no_space", "make room on the disk, or remove unused seals: quarterdeck seals collect"),
    ("EFBIG", "too_large", RAISE_BOUND),
)
"""By npm's codes: our code, and the remedy."""


def _inside(path: str) -> str:
    return posixpath.normpath(posixpath.join("/", path.replace("\\", "/"))).lstrip("/")


def license_of(value: object) -> str:
    """Return a licence as the package names it, in any of the forms that npm has had."""
    if isinstance(value, dict):
        value = value.get("type")
    return value[:100] if isinstance(value, str) else ""
