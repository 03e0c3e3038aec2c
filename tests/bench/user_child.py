"""A script that measures as an ordinary user, who gets bubblewrap."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, Final

from support.config.places import short_folder
from support.processes.identities import Identity
from support.processes.running import run
from support.sandbox.machine_facts import bubblewrap_missing

from .finding import Finding, NotMeasuredError, Target

DEADLINE_S: Final = 300.0


def told_by(script: str, count: int) -> Any:
    """The document that a script beside this file prints, which measures so often.

    Raises:
        NotMeasuredError: there is no such user here, or no bubblewrap, or the script failed.
    """
    user = Identity.USER
    if missing := user.missing or bubblewrap_missing():
        raise NotMeasuredError(missing)
    command = user.quarterdeck
    with short_folder() as folder:
        user.own(folder)
        environ = {"PATH": os.environ["PATH"], "HOME": str(folder), **command.env}
        argv = (command.argv[0], Path(__file__).with_name(script), str(count))
        done = run(*argv, env=environ, cwd=folder, within_s=DEADLINE_S, **user.popen)
    if done.returncode != 0:
        raise NotMeasuredError(done.stderr[-300:])
    return json.loads(done.stdout)


def over_bare(
    times: dict[str, list[float]],
    target: Target,
    measure: str,
    note: str,
    told: Mapping[str, str] = MappingProxyType({}),
) -> list[Finding]:
    """Each median beyond that of the bare way.

    Args:
        times: in milliseconds, by the name of the way.
        target: for each.
        measure: a format of `name`.
        note: a format of `bare`, `taken` and `how`.
        told: how each was carried out.
    """
    medians = {name: median(each) for name, each in times.items()}
    bare = medians.pop("bare")
    return [
        Finding(
            measure.format(name=name),
            "ms",
            target,
            taken - bare,
            note=note.format(bare=bare, taken=taken, how=told.get(name)),
        )
        for name, taken in medians.items()
    ]
