"""Check one server: throwaway directories, the scenario, the verdicts, the report."""

import time
from collections.abc import Collection, Iterable
from pathlib import Path
from statistics import median
from typing import Final

from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig
from quarterdeck_protocol.secrets import Redactor
from quarterdeck_sandbox import temporary_folder

from .episode import Ending, Exchange, Recording
from .judge import judge
from .judge.definitions import MAX_TOOLS
from .observed import observe
from .place import Place, Subject
from .process_scenario import record
from .scenario import Wishes
from .verdicts import Measured, Report, outcomes
from .world import World

STDERR_LINES: Final = 15
"""The last lines that a report shows of a server that is of no use."""


async def check(
    config: ServerConfig,
    wishes: Wishes,
    *,
    called: str,
    installs: bool = False,
    allow_unsandboxed: bool = False,
    ignored: Collection[str] = (),
    secrets: Iterable[str] = (),
) -> Report:
    """Try everything that applies to a server, and report it as `called`; raise LaunchError if it cannot be started.

    A process needs a harmless policy, see `place.harmless`. Checks in `ignored` do not count; `secrets` are hidden.
    """
    began = time.monotonic()
    if isinstance(config, StdioServerConfig):
        with temporary_folder("quarterdeck-check-") as base:
            place = Place(Path(base))
            place.make()
            world = World(place.home, has_runner=installs).make()
            recording = await record(Subject(config, place, world, installs, allow_unsandboxed), wishes)
    else:
        from .remote_scenario import record as record_remote  # an HTTP client

        recording = await record_remote(config, wishes)
    return _report(recording, called, time.monotonic() - began, ignored, Redactor(tuple(secrets)))


def _report(recording: Recording, called: str, took_s: float, ignored: Collection[str], redactor: Redactor) -> Report:
    verdicts = [
        verdict._replace(problem=redactor.clean(verdict.problem.encode("utf-8", "replace")).decode(errors="replace"))
        for verdict in judge(recording)
    ]
    name, version = _own_name(recording)
    eras = tuple(dict.fromkeys(each.era for each in recording.episodes if each.era))
    untried = recording.untried
    if len(recording.tools) > MAX_TOOLS:
        untried = (*untried, f"definitions of {len(recording.tools) - MAX_TOOLS} tools beyond the first {MAX_TOOLS}")
    stderr = ""
    if not eras and recording.episodes:
        stderr = redactor.clean(recording.episodes[0].stderr.encode()).decode(errors="replace")
        stderr = "\n".join(stderr.splitlines()[-STDERR_LINES:])
    return Report(
        called,
        name,
        version,
        eras,
        outcomes(verdicts, ignored),
        _measured(recording, took_s),
        (*untried, *(f"the sandbox is weaker here: {gap}" for gap in recording.gaps)),
        stderr,
        observe(recording) if recording.decoys and eras else None,
    )


def _own_name(recording: Recording) -> tuple[str, str]:
    for exchange in recording.all_of("initialize", "discover"):
        members = exchange.result_members
        meta = members.get("_meta")
        told = members.get("serverInfo") or (
            meta.get("io.modelcontextprotocol/serverInfo") if isinstance(meta, dict) else None
        )
        if isinstance(told, dict):
            return str(told.get("name", ""))[:200], str(told.get("version", ""))[:80]
    return "", ""


def _measured(recording: Recording, took_s: float) -> Measured:
    greeted = [each.greeted_s for each in recording.episodes if each.greeted_s is not None]
    cpu = [each.cpu_s for each in recording.episodes if each.cpu_s is not None and each.name == "legacy"]
    return Measured(
        started_s=min(greeted, default=None),
        listed_s=_median(recording.all_of("list:tools/list")),
        answered_s=_median(recording.all_of("ping", "after:garbage")),
        cpu_s=max(cpu, default=None),
        peak_bytes=max((each.peak_bytes for each in recording.episodes if each.peak_bytes), default=None),
        tools=len(recording.tools),
        calls=sum(each.method == "tools/call" for episode in recording.episodes for each in episode.exchanges),
        took_s=took_s,
    )


def _median(exchanges: Iterable[Exchange]) -> float | None:
    times = [each.waited_s for each in exchanges if each.ending is Ending.ANSWERED]
    return median(times) if times else None
