"""Options of the native tools: a profile and a workspace from the command line, the rest from files.

    {"native": {"sandbox": {"network": "none"}, "webfetch": {"allow": ["127.0.0.1:8000"], "proxy": null}}}

`sandbox` is a server's `sandbox`, for commands beyond the workspace.  No directory is looked at or opened here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from quarterdeck.common.tool_names import Profile
from quarterdeck.config.load.document import NATIVE_KEY
from quarterdeck.config.load.problems import Problem, Problems, RowError, at, describe, judge
from quarterdeck.config.load.row import locate_sandbox, resolve
from quarterdeck.config.load.variables import Variables
from quarterdeck.config.places.paths import native_fingerprint
from quarterdeck_protocol.policy import FrozenModel, SandboxPolicy

from .web_policy import FetchPolicy


class NativeSettings(FrozenModel):
    """The key `native` of configuration files.

    Attributes:
        sandbox: what the commands of `bash`, `process` and `bg-process` may reach and use; None for the default, which
            shows them the workspace, writable, and the internet.
        webfetch: what `webfetch` may reach besides the internet, and how.
    """

    sandbox: SandboxPolicy | None = None
    webfetch: FetchPolicy | None = None


NO_SETTINGS: Final = NativeSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeWish:
    """The native tools to serve, and where they work.

    Attributes:
        workspace: absolute, without links.
        allow_dirs: further directories that they may change; likewise.
        tools: names within the profile; None for all of it.
        gate: whether a file must have been read before it is changed; a call by hand has nothing before it.
    """

    profile: Profile
    workspace: Path
    allow_dirs: tuple[Path, ...] = ()
    tools: tuple[str, ...] | None = None
    gate: bool = True
    settings: NativeSettings = field(default=NO_SETTINGS, repr=False)

    @property
    def writable(self) -> tuple[Path, ...]:
        """The directories whose files these tools, and the commands of `bash`, may change."""
        if self.profile is Profile.AUTHORING:
            return ()
        said = self.settings.sandbox.write if self.settings.sandbox is not None else ()
        return (self.workspace, *self.allow_dirs, *map(Path, said))

    @property
    def fingerprint(self) -> str:
        """12 hex digits that name all but the settings, by which a command finds the `serve` that offers the same."""
        return native_fingerprint(self.profile, self.workspace, self.allow_dirs, self.tools)


def examine_native(value: object, variables: Variables) -> tuple[NativeSettings | None, tuple[Problem, ...]]:
    """Return the settings of the key `native`, its variables resolved; or what is wrong with it.

    Null stands for an absent key.  The sandbox's relative paths start at the file's directory.
    """
    problems = Problems()
    fields = None
    with problems.kept():
        fields = _object(resolve(value, NATIVE_KEY, variables, problems), NATIVE_KEY)
    if fields is None or problems:
        return None, tuple(problems)
    for key, member in fields.items():
        if key == "sandbox" and isinstance(member, dict):
            fields[key] = locate_sandbox(member, variables)
        elif key == "webfetch":
            with problems.kept():
                fields[key] = _object(member, at(NATIVE_KEY, key))
    settings, found = judge(NativeSettings, fields, NATIVE_KEY)
    places = {problem.location for problem in problems}
    problems += [problem for problem in found if problem.location not in places]
    return (None, tuple(problems)) if problems else (settings, ())


def merge_native(parts: Mapping[Path, NativeSettings]) -> tuple[NativeSettings, tuple[str, ...]]:
    """Return the settings of several files, of each member the earlier one, and a line for each set aside."""
    merged, owners, warnings = NO_SETTINGS, dict[str, Path](), list[str]()
    for path, part in parts.items():
        said = {member: value for member, value in part if value is not None}
        warnings += [
            f"{path}: '{NATIVE_KEY}.{member}' is ignored: {owners[member]} defines it first"
            for member in said
            if member in owners
        ]
        merged = merged.model_copy(update={member: value for member, value in said.items() if member not in owners})
        owners = dict.fromkeys(said, path) | owners
    return merged, tuple(warnings)


def _object(value: object, location: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise RowError(location, f"expected an object, got {describe(value)}")
    return {key: member for key, member in value.items() if member is not None}
