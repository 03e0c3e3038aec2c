"""Find the paths that a server's row names and its sandbox hides, and make the row that gives them.

Only the row counts, its command line and its variables: what a server *says* it lacks may be chosen by whoever wrote
it.  What may never be given is refused as at a start.  Nothing is started or written here.
"""

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from quarterdeck.config.environment import server_environment
from quarterdeck.config.load.jsonc import set_member
from quarterdeck.config.load.origin import Origin
from quarterdeck.config.places.paths import runtime_dir, state_dir
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_sandbox import (
    LaunchPlan,
    MountKind,
    NamedPath,
    Places,
    RequiredPath,
    View,
    grant_for,
    is_code,
    is_visible,
    is_within,
    is_within_any,
    lay_out,
    named_in,
    need_of,
    plan_launch,
    project_of,
    resolve_program,
)

KEYS: Final = ("read", "write")


def missing(config: StdioServerConfig, environ: Mapping[str, str]) -> tuple[list[RequiredPath], list[str]]:
    """What the row of a server names and its sandbox does not show, and in words what cannot be given so.

    Raises:
        LaunchError: the row cannot be started for another reason.
    """
    with tempfile.TemporaryDirectory(prefix="quarterdeck-allow-") as base:
        plan, view = _laid_out(config, config.sandbox, environ, base)
        home = os.path.realpath(os.path.expanduser("~"))
        places = [*named_in(plan.argv, config.env, plan.cwd, home)]
        if config.cwd is not None:
            places.insert(0, NamedPath(os.path.realpath(plan.cwd), "cwd"))
        found: list[RequiredPath] = []
        said: list[str] = []
        for named in places:
            if is_within(named.path, os.path.realpath(base)):
                continue
            need = _lacks(named, view, home)
            if isinstance(need, str):
                said.append(need)
            elif need is not None:
                found.append(need)
    return _together(found), list(dict.fromkeys(said))


def widened(config: StdioServerConfig, needs: Iterable[RequiredPath], environ: Mapping[str, str]) -> SandboxPolicy:
    """The server's policy with these.

    Raises:
        LaunchError: one of them may not be shown.
        ValueError: the policy contradicts itself.
    """
    lists = _lists({key: list(getattr(config.sandbox, key)) for key in KEYS}, needs)
    try:
        policy = SandboxPolicy.model_validate(config.sandbox.model_dump() | lists)
    except ValidationError as error:
        raise ValueError(plain_words(error)) from error
    with tempfile.TemporaryDirectory(prefix="quarterdeck-allow-") as base:
        _laid_out(config, policy, environ, base)
    return policy


def sandbox_with(row: Mapping[str, object], needs: Iterable[RequiredPath]) -> dict[str, object]:
    """The `sandbox` of a row as it is written, with these."""
    written = row.get("sandbox")
    sandbox = dict(written) if isinstance(written, Mapping) else {}
    old = {key: list(value) if isinstance(value := sandbox.get(key), list) else [] for key in KEYS}
    for key, paths in _lists(old, needs).items():
        if paths or key in sandbox:
            sandbox[key] = paths
    return sandbox


def edited(text: str, origin: Origin, sandbox: Mapping[str, object]) -> str:
    """The text of a file with this `sandbox` in the row, and every other character where it was.

    Raises:
        DocumentError: it is no JSON object.
        EditError: the row cannot be changed so.
    """
    steps = [step.replace("~1", "/").replace("~0", "~") for step in origin.pointer.split("/")[1:]]
    written = origin.row.get("sandbox")
    if not isinstance(written, Mapping):
        return set_member(text, [*steps, "sandbox"], sandbox, has_comments=True)
    for key in KEYS:
        if sandbox.get(key, []) != written.get(key, []):
            text = set_member(text, [*steps, "sandbox", key], sandbox[key], has_comments=True)
    return text


def _laid_out(
    config: StdioServerConfig, policy: SandboxPolicy, environ: Mapping[str, str], base: str
) -> tuple[LaunchPlan, View]:
    home, tmp, user_home = Path(base, "home"), Path(base, "tmp"), Path(os.path.expanduser("~"))
    for folder in (home, tmp):
        folder.mkdir(exist_ok=True)
    env = server_environment(config, environ, home, tmp)
    plan = plan_launch(config.command, config.args, env, config.cwd or str(home))
    places = Places(home, tmp, user_home, (str(state_dir()), str(runtime_dir())))
    program = resolve_program(plan, user_home, environ)
    # Whether this machine can give it is found out at the start, by who starts it.
    return plan, lay_out(policy, plan, program, places, environ, nests_safely=True, can_close=True)


def _lacks(named: NamedPath, view: View, user_home: str) -> RequiredPath | str | None:
    """What the policy needs for this path; in words why that cannot be given so; None for nothing."""
    path = named.path
    what = f"{named.label} {path}".lstrip()
    if os.path.lexists(path):
        if is_visible(view, path):
            return _lacks_around(named, view, user_home)
        if grant := grant_for(path, user_home):
            return (
                f'{what} is not offered: add "grants": ["{grant}"] to its sandbox; '
                f"or, if it may see the file itself, --read {path}"
            )
        if not os.path.isdir(path) and not os.path.isfile(path):
            return f"{what} is not a file or folder: a socket or device leads out of the sandbox"
        return need_of(named, user_home) or f"{what} is in a folder with other files: move it into a folder of its own"
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        return (
            f"{what} does not exist, and neither does its folder: create the folder first"
            if is_within(path, user_home)
            else None
        )
    if is_visible(view, folder):
        return None
    return need_of(named, user_home) or f"{what} would be created in a folder with other files: choose another place"


def _lacks_around(named: NamedPath, view: View, user_home: str) -> RequiredPath | None:
    """What a file that is visible itself lacks beside it."""
    if is_code(named.path):
        root = project_of(named.path, user_home)
        return need_of(named, user_home) if root is not None and not is_visible(view, root) else None
    mount = view.covering(named.path)
    if mount is None or mount.kind is not MountKind.WRITE or mount.target != named.path or os.path.isdir(named.path):
        return None
    need = need_of(named, user_home)
    return need if need is not None and need.key == "write" else None


def _together(needs: Sequence[RequiredPath]) -> list[RequiredPath]:
    """Each once, without what another gives already."""
    wide = [need.path for need in needs if need.key == "write"]
    kept: dict[tuple[str, str], RequiredPath] = {}
    for need in needs:
        others = [other.path for other in needs if other is not need and other.key == need.key]
        is_given = any(path != need.path and is_within(need.path, path) for path in others)
        if not is_given and not (need.key == "read" and is_within_any(need.path, wide)):
            kept.setdefault((need.key, need.path), need)
    return list(kept.values())


def _lists(old: Mapping[str, Sequence[object]], needs: Iterable[RequiredPath]) -> dict[str, list[object]]:
    """The lists of a policy with these paths; what a folder gives that is written from now on is not named twice."""
    needs = tuple(needs)
    added = {key: [need.path for need in needs if need.key == key] for key in KEYS}
    lists: dict[str, list[object]] = {}
    for key in KEYS:
        kept = [path for path in old[key] if not (isinstance(path, str) and _is_given(path, key, added))]
        lists[key] = [*kept, *(path for path in dict.fromkeys(added[key]) if path not in kept)]
    return lists


def _is_given(path: str, key: str, added: Mapping[str, list[str]]) -> bool:
    if path in added[key]:
        return False
    return is_within_any(path, added["write"]) or (key == "read" and is_within_any(path, added["read"]))
