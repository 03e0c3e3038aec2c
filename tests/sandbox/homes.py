"""Faked homes with what people have in theirs."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_sandbox.program.launch import LaunchPlan, plan_launch
from quarterdeck_sandbox.program.resolve import Program, resolve_program
from quarterdeck_sandbox.view.layout import Places, View, build_view
from quarterdeck_sandbox.view.secret_paths import PathRules

ELF = Path("/bin/sh").resolve().read_bytes()[:4096]  # the beginning of a binary whose loader exists


@dataclass(frozen=True, slots=True)
class Home:
    """A user's home and the directories of one server."""

    root: Path

    @property
    def user(self) -> Path:
        return self.root / "home" / "u"

    @property
    def state(self) -> Path:
        return self.user / ".local" / "state" / "quarterdeck"

    @property
    def places(self) -> Places:
        return Places(self.state / "s" / "home", self.state / "s" / "tmp", self.user, (str(self.state),))

    def file(self, path: str, text: str | bytes = "", mode: int = 0o644) -> Path:
        """A file in the home, or anywhere below the root for a path that begins with a slash."""
        target = self.root / path.lstrip("/") if path.startswith("/") else self.user / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode() if isinstance(text, str) else text)
        target.chmod(mode)
        return target

    def program(self, path: str, text: str | bytes = "#!/bin/sh\n") -> Path:
        return self.file(path, text, 0o755)

    def link(self, path: str, to: str | Path) -> Path:
        target = self.user / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(to)
        return target

    def python(self, prefix: str) -> Path:
        """Something that looks like an installed Python; its program."""
        self.file(f"{prefix}/lib/python3.12/os.py")
        return self.program(f"{prefix}/bin/python3.12", ELF)

    def venv(self, prefix: str, base: Path) -> Path:
        """A virtual environment made from `base`; its program."""
        self.file(f"{prefix}/pyvenv.cfg", f"home = {base.parent}\n")
        return self.link(f"{prefix}/bin/python", base)

    def plan(self, command: str | Path, *args: str, path: Sequence[str | Path] = (), **env: str) -> LaunchPlan:
        """A plan that starts in the private home."""
        search = os.pathsep.join([*map(str, path), "/usr/bin", "/bin"])
        return plan_launch(str(command), args, {"PATH": search, **env}, env.pop("cwd", str(self.places.home)))

    def resolve(self, plan: LaunchPlan, environ: Mapping[str, str] = {}) -> Program:
        return resolve_program(plan, self.user, environ)

    def view(self, plan: LaunchPlan | None = None, environ: Mapping[str, str] | None = None, **policy: object) -> View:
        """What that plan, or a shell, sees under a policy."""
        plan = plan or self.plan("/bin/sh")
        program = self.resolve(plan)
        return build_view(SandboxPolicy.model_validate(policy).values, plan, program, self.places, environ or {})

    def rules(self, **policy: object) -> PathRules:
        return PathRules.of(SandboxPolicy.model_validate(policy).values, self.places)


def make_home(root: Path) -> Home:
    """A home with a server's private directories in it, below `root`, which nothing is mounted over."""
    home = Home(Path(os.path.realpath(root)))
    for folder in (home.places.home, home.places.tmp):
        folder.mkdir(parents=True)
    return home
