"""What a program needs to be executed where nothing but the system is visible: found out before it is confined.

    named path ── symbolic links ──▶ file ── shim? ──▶ the program behind it
                                       └── first line ──▶ interpreter ── … and so on

Each file on the way is shown with the folder that it belongs to (`installations`), each link as a link.  Only looks;
starts nothing.
"""

import os
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

import msgspec
from msgspec.structs import replace

from quarterdeck_sandbox import observed_files as observed
from quarterdeck_sandbox.policy.mounts import is_within, is_within_any

from .installations import SYSTEM_FOLDERS, Prefix, ShimContext, behind_shim, environment_of, is_environment, prefix_of
from .launch import DEFAULT_PATH, LaunchError, LaunchPlan, plan_launch

MAX_STEPS: Final = 20
"""Shims and interpreters on the way to a program; the kernel follows five first lines."""

HEAD_BYTES: Final = 4096
"""Read of a file: its first line, which the kernel cuts at 256, and an ELF file's program headers."""

MAX_LINE_BYTES: Final = 256  # of a first line the kernel reads no more (BINPRM_BUF_SIZE)

SETS_PROGRAM: Final = re.compile(r"PATH|(?:XDG|UV|PYENV|RBENV|NODENV|ASDF|MISE|VOLTA)_.+|.+_VERSION")
"""Variables that decide which program a name stands for, and where version managers keep theirs."""

_MACH_O: Final = (b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
_PT_INTERP: Final = 3

_RUN_BY_SHELL: Final = re.compile(rb"\A[^\n]{0,256}\n(?:'''|\"true\" ''')exec' \"?(/[^\"\n]{1,1024}?)\"? \"\$0\"")
"""How Python's installers write a first line that is too long for the kernel: as a line of the shell."""


class Program(msgspec.Struct, frozen=True):
    """How to execute a plan's program, and what it needs."""

    path: str  # the plan's program, or what a version manager's shim stands for
    prefixes: tuple[Prefix, ...] = ()  # what it needs to see outside the system; none contains another
    links: tuple[tuple[str, str], ...] = ()  # symbolic links on the way, as (path, target), outside of those
    # Variables that it needs to find the same things as outside
    env: Mapping[str, str] = msgspec.field(default_factory=dict)


class FileHead(msgspec.Struct, frozen=True):
    """What the first bytes of a file say of how it is executed."""

    interpreter: str = ""  # the path in a script's first line, or an ELF file's loader; empty for none
    argument: str = ""  # the rest of a script's first line; `text` is its beginning
    script: bool = False
    text: str = ""


def resolve_program(plan: LaunchPlan, user_home: Path, environ: Mapping[str, str]) -> Program:
    """Follow `plan.program` to all the files that executing it takes.

    `user_home` is not the private one; `environ` is ours: where version managers keep their things, if the plan's does
    not say.  Raise LaunchError `not_executable` or `command_not_found`: the kernel would refuse it, or a shim has no
    program.
    """
    walk = _ProgramSearch(plan, observed.realpath(str(user_home)), environ)
    path = walk.follow(plan.program, plan.argv[0])
    # `env NAME=VALUE program` as a command is the same indirection as in a first line.
    if os.path.basename(path) == "env" and (name := _program_of_env(plan.argv[1:])):
        walk.follow(_look_up(name, plan, "env"), name)
    return walk.result(path)


class _ProgramSearch:
    def __init__(self, plan: LaunchPlan, home: str, environ: Mapping[str, str]) -> None:
        self._plan = plan
        self._home = home
        self._shims = ShimContext(plan.cwd, home, {**environ, **plan.env})
        self._prefixes: dict[str, Prefix] = {}
        self._links: dict[str, str] = {}
        self._path = plan.env.get("PATH") or DEFAULT_PATH
        self._added: dict[str, str] = {}
        self._steps = 0
        self._met: list[str] = []

    def follow(self, path: str, name: str) -> str:
        """Note everything that `path`, called by `name`, needs, and return what to execute instead."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            self._give_up(path)
        real = self._real(path)
        head = read_head(real)
        if program := self._unshimmed(real, head, os.path.basename(name)):
            self._path = os.pathsep.join((os.path.dirname(program), self._path))
            return self.follow(program, program)
        self._need(real)
        self._need_of_tools(real)
        if head.script:
            self._interpreter(path, real, head)
        elif head.interpreter:
            if not observed.exists(head.interpreter):
                raise LaunchError("command_not_found", f"{path}: its loader {head.interpreter} does not exist")
            self._need(self._real(head.interpreter))
        return path

    def result(self, path: str) -> Program:
        kept: list[Prefix] = []
        for prefix in sorted(self._prefixes.values(), key=lambda prefix: prefix.path):
            if not is_within_any(prefix.path, (other.path for other in kept)):
                kept.append(prefix)
        shown = (*SYSTEM_FOLDERS, *(prefix.path for prefix in kept))
        links = tuple((link, to) for link, to in sorted(self._links.items()) if not is_within_any(link, shown))
        if self._path != (self._plan.env.get("PATH") or DEFAULT_PATH):
            self._added["PATH"] = self._path
        return Program(path, tuple(kept), links, self._added)

    def _interpreter(self, script: str, real: str, head: FileHead) -> None:
        interpreter = os.path.join(self._plan.cwd, head.interpreter)
        if not observed.exists(interpreter):
            raise LaunchError(
                "command_not_found", f"{script}: its interpreter {head.interpreter} (the first line's) does not exist"
            )
        if not observed.isfile(interpreter) or not observed.access(interpreter, os.X_OK):
            raise LaunchError("not_executable", f"{script}: its interpreter {head.interpreter} is not executable")
        if os.path.basename(interpreter) == "env":
            self.follow(interpreter, interpreter)
            if not (name := _program_of_env(head.argument.split())):
                return
            interpreter = _look_up(name, replace(self._plan, env={**self._plan.env, "PATH": self._path}), script)
        self.follow(interpreter, interpreter)
        if os.path.basename(interpreter).startswith("python") and is_within(real, f"{self._home}/.local/bin"):
            self._need_user_site()

    def _need(self, real: str) -> None:
        prefix = prefix_of(real, self._home, tuple(self._met))
        if prefix and prefix.path not in self._prefixes:
            self._prefixes[prefix.path] = prefix
            if is_environment(prefix.path):
                for other in environment_of(prefix.path, self._home):
                    self._prefixes.setdefault(other.path, other)

    def _need_of_tools(self, real: str) -> None:
        """Note what uv looks for next to itself, and the Pythons that it installed."""
        if os.path.basename(real) not in {"uv", "uvx"}:
            return
        for sibling in ("uv", "uvx"):
            other = os.path.join(os.path.dirname(real), sibling)
            if observed.isfile(other):
                self._need(observed.realpath(other))
        data = self._shims.env.get("XDG_DATA_HOME") or f"{self._home}/.local/share"
        pythons = observed.realpath(self._shims.env.get("UV_PYTHON_INSTALL_DIR") or os.path.join(data, "uv", "python"))
        try:
            folders = sorted(f"{pythons}/{name}" for name in observed.listdir(pythons))
        except OSError:
            return
        folders = [folder for folder in folders if not observed.islink(folder)]
        bins = [bin_ for folder in folders if observed.isdir(bin_ := os.path.join(folder, "bin"))]
        for bin_ in bins:
            self._need(os.path.join(bin_, "python"))
        # As its own install directory uv would want to write there; on the PATH, it takes them as they are.
        self._path = os.pathsep.join((self._path, *bins))

    def _need_user_site(self) -> None:
        """Note the packages of `pip install --user`, which are found through the home."""
        library = f"{self._home}/.local/lib"
        try:
            versions = [name for name in observed.listdir(library) if name.startswith("python")]
        except OSError:
            return
        for version in versions:
            packages = os.path.join(library, version, "site-packages")
            if observed.isdir(packages):
                self._prefixes.setdefault(packages, Prefix(packages, "packages of pip install --user"))
                self._added["PYTHONUSERBASE"] = f"{self._home}/.local"

    def _unshimmed(self, real: str, head: FileHead, name: str) -> str | None:
        if program := behind_shim(real, head.text, name, self._shims):
            return program
        if "shims" not in real.split("/") or " exec " not in head.text:
            return None
        # Its version is "system": what comes on the PATH when the shims' folder is left out.
        folder = os.path.dirname(real)
        rest = [each for each in self._path.split(os.pathsep) if observed.realpath(each) != folder]
        self._path = os.pathsep.join(rest)
        return _look_up(name, replace(self._plan, env={"PATH": self._path}), real)

    def _real(self, path: str) -> str:
        """Return where `path` leads, noting each symbolic link on the way."""
        followed = observed.follow(path)
        self._links.update(followed.links)
        # Also where links lead: whoever can write the file behind a link says as much as who can write the link.
        self._met += (path, *(link for link, _ in followed.links), followed.real)
        if followed.endless:
            self._give_up(path)
        for link, _ in followed.links:
            if is_environment(os.path.dirname(os.path.dirname(link))):
                # Followed further, it would no longer be known whose Python this is.
                self._need(link)
        return followed.real

    def _give_up(self, path: str) -> NoReturn:
        raise LaunchError("not_executable", f"{path} leads nowhere: too many links or interpreters")


def _program_of_env(words: Sequence[str]) -> str:
    """Return the program that `env` would execute, given its arguments; empty if unknown."""
    pending = list(words)
    while pending:
        word = pending.pop(0)
        if word in {"-S", "--split-string"}:
            continue
        if word.startswith("-S"):
            pending.insert(0, word[2:])
        elif word.startswith("--split-string="):
            pending[:0] = word.split("=", 1)[1].split()
        elif word in {"-u", "--unset", "-C", "--chdir"}:
            del pending[:1]
        elif " " in word:
            pending[:0] = word.split()
        elif not word.startswith("-") and "=" not in word:
            return word
    return ""


def _look_up(name: str, plan: LaunchPlan, asked_by: str) -> str:
    try:
        return plan_launch(name, (), plan.env, plan.cwd).program
    except LaunchError as error:
        raise LaunchError(error.code, f"{asked_by} asks for {name!r}: {error}") from None


def read_head(path: str) -> FileHead:
    """Read the first bytes of a program.  Raise LaunchError `not_executable` if it is none, or unreadable."""
    try:
        head = observed.read(path, HEAD_BYTES)
    except PermissionError:
        # Executable yet unreadable is legal for a binary; what it needs cannot be known.
        return FileHead()
    except OSError as error:
        raise LaunchError("not_executable", f"{path} cannot be read: {error.strerror}") from None
    if head.startswith(b"#!"):
        return _script(path, head)
    if head.startswith(b"\x7fELF"):
        return FileHead(interpreter=_loader(head))
    if head.startswith(_MACH_O) or _has_foreign_formats():
        return FileHead()
    raise LaunchError(
        "not_executable", f"{path} is not a program: it lacks a first line '#!…' or is for another machine"
    )


def _script(path: str, head: bytes) -> FileHead:
    line = head[2:MAX_LINE_BYTES].split(b"\n", 1)[0].strip(b" \t\r")
    interpreter, _, argument = os.fsdecode(line).replace("\t", " ").partition(" ")
    if not interpreter:
        raise LaunchError("not_executable", f"{path}: its first line has no interpreter")
    if long := _RUN_BY_SHELL.match(head):
        interpreter, argument = os.fsdecode(long[1]), ""
    return FileHead(interpreter, argument.strip(), script=True, text=head.decode(errors="replace"))


def _loader(head: bytes) -> str:
    try:
        order = "<" if head[5] == 1 else ">"
        if head[4] == 2:
            [offset] = struct.unpack_from(order + "Q", head, 32)
            size, count = struct.unpack_from(order + "HH", head, 54)
            place, length = "QQ", (8, 32)
        else:
            [offset] = struct.unpack_from(order + "I", head, 28)
            size, count = struct.unpack_from(order + "HH", head, 42)
            place, length = "II", (4, 16)
        for index in range(count):
            start = offset + index * size
            if struct.unpack_from(order + "I", head, start)[0] == _PT_INTERP:
                [where] = struct.unpack_from(order + place[0], head, start + length[0])
                [span] = struct.unpack_from(order + place[1], head, start + length[1])
                return os.fsdecode(head[where : where + span].rstrip(b"\0"))
    except (struct.error, IndexError):
        pass
    return ""


def _has_foreign_formats() -> bool:
    """Return whether the kernel was taught formats that we do not know: then it must judge."""
    try:
        return bool(set(observed.listdir("/proc/sys/fs/binfmt_misc")) - {"register", "status"})
    except OSError:
        return False
