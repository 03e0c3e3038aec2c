"""The options that say what a command may see, reach and use: of `run` and of `sandbox run`.

A policy is put together here as its JSON, and judged where the command is started: a door needs no models.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from quarterdeck.cli.exits import UsageError, as_command_error
from quarterdeck.cli.parameters import Combined, Option

if TYPE_CHECKING:
    from quarterdeck_protocol.policy import SandboxPolicy

POLICY_HELP: Final = "see quarterdeck sandbox run --help; quarterdeck config schema has a policy's keys"

_PATHS: Final = ("read", "write", "hidden")


@dataclass(frozen=True, slots=True)
class SandboxWish:
    """The sandbox options: a row's `sandbox` as JSON with absolute paths, the given limits' names, variables."""

    sandbox: str = "{}"
    limits: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    inherit_env: tuple[str, ...] = ()


def _wish(
    preset: Annotated[
        str | None, Option(metavar="NAME", help="strict, standard or trusted.", show_default="standard")
    ] = None,
    policy: Annotated[
        Path | None, Option(metavar="FILE", help="A policy as JSON: what a server's `sandbox` holds.")
    ] = None,
    read: Annotated[list[str] | None, Option(metavar="PATH", help="Show this path, read-only.")] = None,
    write: Annotated[list[str] | None, Option(metavar="PATH", help="Let it change this path.")] = None,
    hide: Annotated[list[str] | None, Option(metavar="PATH", help="Hide this path within those.")] = None,
    grant: Annotated[list[str] | None, Option(metavar="NAME", help="git-config, ssh-agent, aws, …")] = None,
    network: Annotated[
        list[str] | None, Option(metavar="MODE", help="none, loopback, internet, full; or HOST[:PORT], repeated.")
    ] = None,
    limit: Annotated[list[str] | None, Option(metavar="KEY=VALUE", help="memory_bytes=1G, wall_s=10, …")] = None,
    env: Annotated[list[str] | None, Option(metavar="NAME[=VALUE]", help="A variable that it may see.")] = None,
) -> SandboxWish:
    fields = _read_policy(policy) if policy is not None else {}
    if preset is not None:
        fields["preset"] = preset
    for key, given in zip(_PATHS, (read, write, hide), strict=True):
        if given:
            fields[key] = [*_listed(fields.get(key)), *(_locate(path, Path()) for path in given)]
    if grant:
        fields["grants"] = [*_listed(fields.get("grants")), *grant]
    if network:
        # One word without a dot or a port is a mode, or a mistake that is told as one.
        fields["network"] = network[0] if len(network) == 1 and not {".", ":"} & {*network[0]} else network
    limits = dict(_limit(item) for item in limit or ())
    if limits:
        before = fields.get("limits")
        fields["limits"] = (before if isinstance(before, dict) else {}) | limits
    given_env = dict(item.partition("=")[::2] for item in env or () if "=" in item)
    inherited = tuple(item for item in env or () if "=" not in item)
    return SandboxWish(json.dumps(fields), tuple(limits), given_env, inherited)


Wish = Annotated[SandboxWish, Combined(_wish)]

HarmlessWish = Annotated[SandboxWish, Combined(_wish, without=frozenset({"write", "grant"}))]
"""For a command that lets nothing of the user's be changed or used."""


def to_policy(sandbox: str) -> "SandboxPolicy":
    """Return the policy of this JSON, or raise CommandError if it is wrong."""
    from pydantic import ValidationError

    from quarterdeck_protocol.policy import SandboxPolicy

    with as_command_error(ValidationError, remedy=POLICY_HELP, what="the policy is wrong: "):
        return SandboxPolicy.model_validate(json.loads(sandbox))


def shown_directory(policy: "SandboxPolicy", directory: str) -> str | None:
    """Return the directory if the policy shows it, else None."""
    shown = (*policy.read, *policy.write)
    if not policy.confines_files or any(os.path.commonpath((directory, path)) == path for path in shown):
        return directory
    return None


def _read_policy(file: Path) -> dict[str, object]:
    with as_command_error(OSError, ValueError, remedy=POLICY_HELP, what=f"{file}: "):
        fields = json.loads(file.read_text())
    if not isinstance(fields, dict):
        raise UsageError(f"{file}: a policy is a JSON object", POLICY_HELP)
    for key in _PATHS:
        if isinstance(paths := fields.get(key), list):
            fields[key] = [_locate(path, file.parent) if isinstance(path, str) else path for path in paths]
    return fields


def _listed(value: object) -> list[object]:
    """Return a file's list; another value is kept, to be reported as a mistake."""
    return [*value] if isinstance(value, list) else [] if value is None else [value]


def _limit(item: str) -> tuple[str, str | None]:
    name, equals, value = item.partition("=")
    if not equals:
        raise UsageError(f"--limit {item}: is not KEY=VALUE", "for example --limit memory_bytes=1G")
    return name, None if value in ("", "none", "null") else value


def _locate(path: str, base: Path) -> str:
    """Return an absolute path: `~` is the home, a relative path starts at `base`."""
    return os.path.abspath(os.path.join(base, os.path.expanduser(path)))
