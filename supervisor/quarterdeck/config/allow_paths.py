"""Find the paths that a server's row names and its sandbox hides, and make the row that grants them.

Only the row's command line and variables count: what a server *reports* as missing may be an attacker's choice.  What
may never be granted is refused as at a start.  Nothing is started or written here.
"""

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from quarterdeck.config.environment import server_environment
from quarterdeck.config.load.jsonc import set_member
from quarterdeck.config.load.origin import Origin, mcp_config_paths, steps_of
from quarterdeck.config.places.paths import runtime_dir, state_dir
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_sandbox import Places, RequiredPath, is_within_any, missing_paths, plan_launch

KEYS: Final = ("read", "write")


def missing(
    config: StdioServerConfig,
    environ: Mapping[str, str],
    policy: SandboxPolicy | None = None,
    *,
    written: frozenset[str] = frozenset(),
) -> tuple[list[RequiredPath], list[str]]:
    """Return the paths that a server's row names and its sandbox, or `policy`, hides; and, in words, what it cannot be
    given.  `written` are options and variables for paths that the server is known to write.  Raises `LaunchError` if
    the row cannot be started for another reason.
    """
    with tempfile.TemporaryDirectory(prefix="quarterdeck-allow-") as base:
        home, tmp = Path(base, "home"), Path(base, "tmp")
        for folder in (home, tmp):
            folder.mkdir()
        env = server_environment(config, environ, home, tmp)
        plan = plan_launch(config.command, config.args, env, config.cwd or str(home))
        places = places_of(home, tmp, Path(plan.cwd), environ)
        values = (policy or config.sandbox).values
        names_cwd = config.cwd is not None
        return missing_paths(plan, values, places, environ, config.env, names_cwd=names_cwd, written=written)


def places_of(home: Path, tmp: Path, cwd: Path, environ: Mapping[str, str]) -> Places:
    """Return the directories of a server that works in `cwd`, its own and those that it may never see."""
    own = tuple(map(str, mcp_config_paths(cwd, environ)[1:]))
    return Places(home, tmp, Path(os.path.expanduser("~")), (str(state_dir()), str(runtime_dir())), own)


def widened(config: StdioServerConfig, needs: Iterable[RequiredPath], environ: Mapping[str, str]) -> SandboxPolicy:
    """Return the server's policy with these paths.  Raises `LaunchError` if one of them may not be shown, `ValueError`
    if the policy contradicts itself.
    """
    lists = _lists({key: list(getattr(config.sandbox, key)) for key in KEYS}, needs)
    try:
        policy = SandboxPolicy.model_validate(config.sandbox.model_dump() | lists)
    except ValidationError as error:
        raise ValueError(plain_words(error)) from error
    missing(config, environ, policy)
    return policy


def sandbox_with(row: Mapping[str, object], needs: Iterable[RequiredPath]) -> dict[str, object]:
    """Return the `sandbox` of a row as it is written, with these paths."""
    written = row.get("sandbox")
    sandbox = dict(written) if isinstance(written, Mapping) else {}
    old = {key: list(value) if isinstance(value := sandbox.get(key), list) else [] for key in KEYS}
    for key, paths in _lists(old, needs).items():
        if paths or key in sandbox:
            sandbox[key] = paths
    return sandbox


def edited(text: str, origin: Origin, sandbox: Mapping[str, object]) -> str:
    """Return the text of a file with this `sandbox` in the row, and every other character unchanged.  Raises
    `DocumentError` if it is no JSON object, `EditError` if the row cannot be changed so.
    """
    steps = steps_of(origin.pointer)
    written = origin.row.get("sandbox")
    if not isinstance(written, Mapping):
        return set_member(text, [*steps, "sandbox"], sandbox, has_comments=True)
    for key in sandbox:
        if sandbox[key] != written.get(key):
            text = set_member(text, [*steps, "sandbox", key], sandbox[key], has_comments=True)
    return text


def _lists(old: Mapping[str, Sequence[object]], needs: Iterable[RequiredPath]) -> dict[str, list[object]]:
    """Return the lists of a policy with these paths; a path inside a folder that is granted now is not named twice."""
    needs = tuple(needs)
    write = [need.path for need in needs if need.key == "write"]
    added = {"read": [need.path for need in needs if need.key == "read" and need.path not in write], "write": write}
    lists: dict[str, list[object]] = {}
    for key in KEYS:
        wider = write if key == "write" else added["read"] + write
        kept = [
            path
            for path in old[key]
            if not isinstance(path, str) or path in added[key] or not is_within_any(path, wider)
        ]
        new = [path for path in dict.fromkeys(added[key]) if path not in kept]
        lists[key] = [*kept, *(path for path in new if not is_within_any(path, {*wider} - {path}))]
    return lists
