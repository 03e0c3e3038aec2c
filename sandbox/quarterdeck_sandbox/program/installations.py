"""How programs are installed: the folder that a file belongs to, and the program behind a version manager's shim.

Of a program the least is shown that it needs to work: a whole folder only where that looks like an installation; of
anything else, the one file.

pyenv and its kin, asdf, mise and Volta put one small program for each command on the PATH, which finds the version
wanted here and executes it.  Inside a sandbox it would not find its own settings, nor those above the working
directory; so the same search is done outside, and the shim never runs.
"""

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from quarterdeck_sandbox import observed_files as observed
from quarterdeck_sandbox.policy.mounts import ancestors, is_within, is_within_any
from quarterdeck_sandbox.view.secret_paths import credentials_touching

from .launch import LaunchError

SYSTEM_FOLDERS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Shown to everyone."""

_BIN: Final = frozenset({"bin", "sbin", "libexec"})

_SHARED: Final = (".local/share", ".local/state", ".config", ".cache")
"""Folders of a home where every program leaves something, so none belongs to one."""

_MAX_PTH_BYTES: Final = 64 * 1024
_MAX_PTH_FILES: Final = 100
"""Of a site-packages folder, these many `*.pth` files are looked at; real ones hold a line or two."""


MAX_SETTINGS_BYTES: Final = 256 * 1024  # read of one file that names versions

_KIN: Final = {
    "pyenv": ("PYENV", ".python-version"),
    "rbenv": ("RBENV", ".ruby-version"),
    "nodenv": ("NODENV", ".node-version"),
}
"""Managers that work alike: the beginning of their variables' names, and the file that names a version."""

_EXECUTES: Final = re.compile(
    r"""^exec ["']?(?:/[^"'\n]{0,1000}/)?(pyenv|rbenv|nodenv|asdf)["']? exec """, re.MULTILINE
)
_PLUGIN: Final = re.compile(r"^# asdf-plugin: (\S{1,100})", re.MULTILINE)


class Prefix(msgspec.Struct, frozen=True):
    """A path that a program needs to see."""

    path: str  # a file or folder, symbolic links followed
    reason: str  # for the receipt
    # The files that name it, if nothing about the path itself proves an installation; their writers could have anything
    # shown
    said_by: tuple[str, ...] = ()


def prefix_of(path: str, user_home: str, said_by: tuple[str, ...]) -> Prefix | None:
    """Return what must be shown for the file `path`, whose folder has no symbolic links; None if everyone sees it."""
    if is_within_any(path, SYSTEM_FOLDERS) or is_within(path, "/nix/store"):
        return None
    for folder, reason in _installations(path):
        if is_installation(folder, user_home):
            return Prefix(folder, reason)
    package = "/".join(path.split("/")[:3])
    if package.startswith("/opt/") and package != path and is_installation(package, user_home):
        return Prefix(package, "a package in /opt", said_by)
    above = os.path.dirname(os.path.dirname(path))
    if (
        os.path.basename(os.path.dirname(path)) in _BIN
        and not is_within(path, user_home)
        and is_installation(above, user_home)
    ):
        return Prefix(above, "the program's prefix", said_by)
    return Prefix(path, "the program", said_by)


def is_installation(folder: str, user_home: str) -> bool:
    """Return whether showing all of `folder` shows no more than an installation."""
    if folder.count("/") < 2 or any(is_within(f"{user_home}/{name}", folder) for name in _SHARED):
        return False
    return next(credentials_touching(folder, user_home), None) is None


def environment_of(prefix: str, user_home: str) -> Iterator[Prefix]:
    """Yield what a virtual environment needs beyond itself: the Python of its making, and folders it refers to."""
    if home := _home_of(prefix):
        said_by = (os.path.join(prefix, "pyvenv.cfg"),)
        base = prefix_of(os.path.join(observed.realpath(home), "python"), user_home, said_by)
        if base and not base.said_by:
            yield Prefix(base.path, f"the Python of {prefix}")
    yield from (refers for refers in _referred(prefix) if is_installation(refers.path, user_home))


def is_environment(folder: str) -> bool:
    """Return whether it is a Python virtual environment."""
    return observed.isfile(os.path.join(folder, "pyvenv.cfg"))


def _installations(path: str) -> Iterator[tuple[str, str]]:
    folder = os.path.dirname(path)
    parts = path.split("/")
    for above in ancestors(folder):
        if os.path.basename(above) == ".linuxbrew":
            yield above, "Homebrew"
    if os.path.basename(folder) in _BIN:
        root = os.path.dirname(folder)
        if kind := _kind(root):
            yield root, kind
    if "node_modules" in parts:
        yield "/".join(parts[: parts.index("node_modules") + 1]), "node packages"


def _kind(root: str) -> str:
    if is_environment(root):
        return "a virtual environment"
    if observed.isdir(os.path.join(root, "conda-meta")):
        return "a conda environment"
    library = os.path.join(root, "lib")
    if any(observed.isfile(os.path.join(library, name, "os.py")) for name in _listed(library) if "py" in name):
        return "a Python"
    if observed.isdir(os.path.join(root, "include", "node")) or observed.isdir(os.path.join(library, "node_modules")):
        return "a node"
    if observed.isfile(os.path.join(root, "release")) and observed.isdir(library):
        return "a Java"
    if observed.isdir(os.path.join(library, "ruby")):
        return "a Ruby"
    return ""


def _home_of(prefix: str) -> str:
    for line in _read(os.path.join(prefix, "pyvenv.cfg"), _MAX_PTH_BYTES).splitlines():
        key, _, value = line.partition("=")
        if key.strip().lower() == "home":
            return value.strip() if value.strip().startswith("/") else ""
    return ""


def _referred(prefix: str) -> Iterator[Prefix]:
    """Folders outside it that the environment's `*.pth` files add: editable installs, pipx's shared libraries."""
    library = os.path.join(prefix, "lib")
    for version in _listed(library):
        packages = os.path.join(library, version, "site-packages")
        for name in [name for name in _listed(packages) if name.endswith(".pth")][:_MAX_PTH_FILES]:
            said_by = os.path.join(packages, name)
            for line in _lines(said_by):
                folder = observed.realpath(os.path.join(packages, line))
                if observed.isdir(folder) and not is_within_any(folder, (observed.realpath(prefix), *SYSTEM_FOLDERS)):
                    yield Prefix(folder, f"named by {name} of {prefix}", (said_by,))


def _lines(path: str) -> list[str]:
    """The folders that a `*.pth` file names; its other lines are code."""
    lines = [line.strip() for line in _read(path, _MAX_PTH_BYTES).splitlines()]
    return [line for line in lines if line and "\0" not in line and not line.startswith(("#", "import ", "import\t"))]


class ShimContext(msgspec.Struct, frozen=True):
    """The surroundings of a shim's call, from which its settings are looked up."""

    cwd: str
    user_home: str
    env: Mapping[str, str]


def behind_shim(path: str, text: str, name: str, context: ShimContext) -> str | None:
    """Return the program that a shim stands for; None if `path` is no shim, or stands for the next on the PATH.

    `path` has no symbolic links; `text` is a script's beginning; `name` is how it was called.  Raise LaunchError
    `command_not_found` if the wanted version is not installed, or none is named.
    """
    if match := _EXECUTES.search(text):
        root = os.path.dirname(os.path.dirname(path))
        if match[1] == "asdf":
            tools = list(dict.fromkeys(_PLUGIN.findall(text)))
            return _configured("asdf", os.path.join(root, "installs"), tools, name, context, _tool_versions)
        return _kin(match[1], root, name, context)
    match os.path.basename(path):
        case "mise" if name != "mise":
            return _mise(name, context)
        case "volta-shim":
            return _volta(name, context)
    return None


def _kin(manager: str, root: str, name: str, context: ShimContext) -> str | None:
    variable, file = _KIN[manager]
    if said := context.env.get(f"{variable}_VERSION"):
        wanted, by = said.split(":"), f"{variable}_VERSION"
    else:
        files = [*_upwards(context.cwd, file), os.path.join(root, "version")]
        wanted, by = next(((_words(path), path) for path in files if _words(path)), (["system"], root))
    for version in wanted:
        if version == "system":
            return None
        folder = os.path.join(root, "versions")
        for candidate in _matching(folder, version):
            if found := _program(folder, candidate, "bin", name):
                return found
    raise _missing(manager, name, " ".join(wanted), by)


def _mise(name: str, context: ShimContext) -> str | None:
    data = context.env.get("MISE_DATA_DIR") or os.path.join(
        context.env.get("XDG_DATA_HOME") or f"{context.user_home}/.local/share", "mise"
    )
    installs = os.path.join(data, "installs")
    tools = [
        tool
        for tool in _listed(installs)
        if any(_program(installs, tool, version, "bin", name) for version in _listed(os.path.join(installs, tool)))
    ]
    return _configured("mise", installs, tools, name, context, _mise_versions)


def _volta(name: str, context: ShimContext) -> str | None:
    root = context.env.get("VOLTA_HOME") or f"{context.user_home}/.volta"
    files = [*_upwards(context.cwd, "package.json"), f"{root}/tools/user/platform.json"]
    for path in files:
        said = _json(path)
        version = _text(said, "volta", "node") or _text(said, "node", "runtime")
        if version:
            if found := _program(root, "tools", "image", "node", version, "bin", name):
                return found
            raise _missing("volta", name, version, path)
    raise _missing("volta", name, "any version", root)


def _configured(
    manager: str,
    installs: str,
    tools: list[str],
    name: str,
    context: ShimContext,
    versions: Callable[[ShimContext], Iterator[tuple[str, Mapping[str, str]]]],
) -> str | None:
    for tool in tools:
        said = context.env.get(f"{manager.upper()}_{re.sub('[^A-Z0-9]', '_', tool.upper())}_VERSION")
        sources = [("the environment", {tool: said})] if said else versions(context)
        for by, wanted in sources:
            if tool not in wanted:
                continue
            for version in wanted[tool].split():
                if version == "system":
                    return None
                for candidate in _matching(os.path.join(installs, tool), version):
                    if found := _program(installs, tool, candidate, "bin", name):
                        return found
            raise _missing(manager, name, f"{tool} {wanted[tool]}", by)
    raise _missing(manager, name, "any version", "its settings")


def _tool_versions(context: ShimContext) -> Iterator[tuple[str, Mapping[str, str]]]:
    for path in (*_upwards(context.cwd, ".tool-versions"), f"{context.user_home}/.tool-versions"):
        yield path, _tools_of(path)


def _mise_versions(context: ShimContext) -> Iterator[tuple[str, Mapping[str, str]]]:
    config = context.env.get("XDG_CONFIG_HOME") or f"{context.user_home}/.config"
    for folder in ancestors(context.cwd):
        for file in ("mise.toml", ".mise.toml", ".config/mise.toml"):
            yield os.path.join(folder, file), _toml_tools(os.path.join(folder, file))
        yield os.path.join(folder, ".tool-versions"), _tools_of(os.path.join(folder, ".tool-versions"))
    yield f"{config}/mise/config.toml", _toml_tools(f"{config}/mise/config.toml")
    yield f"{context.user_home}/.tool-versions", _tools_of(f"{context.user_home}/.tool-versions")


def _tools_of(path: str) -> dict[str, str]:
    lines = (line.split("#", 1)[0].split(None, 1) for line in _read(path).splitlines())
    return {words[0]: words[1] for words in lines if len(words) == 2}


def _toml_tools(path: str) -> dict[str, str]:
    try:
        tools = tomllib.loads(_read(path)).get("tools", {})
    except tomllib.TOMLDecodeError:
        return {}
    found: dict[str, str] = {}
    for tool, said in tools.items() if isinstance(tools, dict) else ():
        first = said[0] if isinstance(said, list) and said else said
        version = first.get("version") if isinstance(first, dict) else first
        if isinstance(version, str):
            found[tool] = version
    return found


def _matching(folder: str, version: str) -> Iterator[str]:
    """Yield the version itself, then the newest installed ones that it begins ("3.12" of "3.12.1")."""
    yield version
    installed = [name for name in _listed(folder) if version == "latest" or name.startswith(version + ".")]
    yield from sorted(installed, key=lambda name: [*map(int, re.findall(r"\d{1,9}", name))], reverse=True)


def _program(*parts: str) -> str | None:
    if any(part.startswith("/") or ".." in part.split("/") for part in parts[1:]):
        return None
    path = os.path.join(*parts)
    return path if observed.isfile(path) and observed.access(path, os.X_OK) else None


def _upwards(cwd: str, name: str) -> list[str]:
    return [path for folder in ancestors(cwd) if observed.isfile(path := os.path.join(folder, name))]


def _words(path: str) -> list[str]:
    return [word for line in _read(path).splitlines() for word in line.split("#", 1)[0].split()]


def _read(path: str, most_bytes: int = MAX_SETTINGS_BYTES) -> str:
    try:
        return observed.read_text(path, most_bytes)
    except OSError:
        return ""


def _json(path: str) -> object:
    try:
        return json.loads(_read(path))
    except (ValueError, RecursionError):
        return None


def _text(value: object, *keys: str) -> str:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def _listed(folder: str) -> list[str]:
    try:
        return sorted(observed.listdir(folder))
    except OSError:
        return []


def _missing(manager: str, name: str, wanted: str, by: str) -> LaunchError:
    return LaunchError(
        "command_not_found",
        f"{manager} has no {name} in {wanted} (asked for by {by}): install it, or name the program itself as command",
    )
