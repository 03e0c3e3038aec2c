"""Hostile and clumsy use of every native tool, in a real session: an error that says what to do, and nothing else.

Never an exception, a hang, a process left behind, or anything from outside of the workspace.
"""

import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from support.processes.identities import give_to_commands
from support.processes.leftovers import no_leftovers, running_with
from support.waiting import eventually_async

from quarterdeck.common.tool_names import Profile
from quarterdeck.config.native_tools import NativeSettings, NativeWish
from quarterdeck.config.web_policy import FetchPolicy
from quarterdeck.tools.catalogue import capability_ids
from quarterdeck.tools.session import DeckSession, open_deck_session
from quarterdeck_protocol.tools import CancelToken, ToolCall, ToolOutcome

pytestmark = pytest.mark.anyio

PATIENCE_S: Final = 60.0
"""For one call on a busy machine; none of these may need a fraction of it."""

SECRET: Final = "the secret of somebody else"

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Scene:
    """A session, its workspace, and a place outside of it."""

    session: DeckSession
    workspace: Path
    outside: Path

    async def outcome(self, tool: str, value: object) -> ToolOutcome:
        """Call `tool` with any value."""
        with anyio.fail_after(PATIENCE_S):
            return await self.session.box.runner.run(ToolCall("1", tool, value), CancelToken())

    async def do(self, tool: str, **arguments: object) -> str:
        outcome = await self.outcome(tool, arguments)
        assert not outcome.is_error, outcome.output
        return outcome.output if isinstance(outcome.output, str) else json.dumps(outcome.output)

    async def fail(self, tool: str, **arguments: object) -> str:
        """Call a tool that must fail with a text; nobody else's secret is in it."""
        outcome = await self.outcome(tool, arguments)
        assert outcome.is_error, outcome.output
        assert isinstance(outcome.output, str)
        assert SECRET not in outcome.output
        return outcome.output

    def put(self, name: str, data: bytes | str) -> Path:
        """A file of the workspace's owner."""
        path = self.workspace / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        give_to_commands(path)
        return path


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory of an ordinary user's; no process is left when all is over."""
    folder = tmp_path_factory.mktemp("hostile") / "workspace"
    folder.mkdir()
    give_to_commands(folder)
    with no_leftovers():
        yield folder


@pytest.fixture(scope="module")
async def scene(workspace: Path) -> AsyncIterator[Scene]:
    """One session for all of them: what one does must not harm the next."""
    outside = workspace.parent / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text(SECRET)
    settings = NativeSettings(webfetch=FetchPolicy(allow=("127.0.0.1",)))
    wish = NativeWish(profile=Profile.ALL, workspace=workspace, settings=settings)
    async with open_deck_session(wish, allow_unsandboxed=True) as session:
        yield Scene(session, workspace, outside)


WRONG: Final[list[object]] = [None, True, -1, 0, 0.5, 1e400, float("nan"), 10**400, "", [], [[]], {"a": {}}]


@pytest.mark.parametrize("name", capability_ids())
async def test_wrong_values_for_every_parameter_are_refused_in_words(scene: Scene, name: str) -> None:
    [descriptor] = [each for each in scene.session.box.descriptors() if each.name == name]
    properties: Any = descriptor.parameters["properties"]
    sound = {key: sample(schema) for key, schema in properties.items()}
    for value in [None, True, 5, "text", [], [1], {"no such parameter": 1}, "{", '{"a":']:
        if value in (None, {}) and not descriptor.parameters.get("required"):
            continue
        assert_refused(await scene.outcome(name, value), name)
    for key, schema in properties.items():
        for value in WRONG:
            if not accepts(schema, value):
                assert_refused(await scene.outcome(name, {**sound, key: value}), name)
    for key in descriptor.parameters.get("required", ()):  # type: ignore[attr-defined]
        assert_refused(await scene.outcome(name, {other: sound[other] for other in sound if other != key}), name)


def assert_refused(outcome: ToolOutcome, name: str) -> None:
    assert outcome.is_error, outcome.output
    assert isinstance(outcome.output, str)
    assert outcome.output.startswith(f"{name} was not run because its input is wrong:"), outcome.output
    assert "It takes" in outcome.output
    assert len(outcome.output) < 2000


def sample(schema: dict[str, Any]) -> object:
    """A value that a schema accepts."""
    if "enum" in schema:
        return schema["enum"][0]
    return {"string": "x", "integer": 1, "number": 1, "boolean": False, "array": [], "object": {}}[schema["type"]]


def accepts(schema: dict[str, Any], value: object) -> bool:
    """Whether a value, which need not be JSON, is none of the wrong ones for `schema`."""
    match schema["type"]:
        case "string":
            return (
                isinstance(value, str)
                and value in schema.get("enum", [value])
                and len(value) >= schema.get("minLength", 0)
            )
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return value == []
        case "object":
            return isinstance(value, dict)
        case kind:
            return value in ((0.5,) if kind == "number" else ()) and not isinstance(value, bool)


MINE: Final = f"{os.getpid()}.25"
"""In the command lines of what these tests start: others of their kind may run on this machine."""

STUBBORN: Final = f"trap '' TERM INT HUP; echo begun; while :; do sleep 71{MINE}; done"


async def test_commands_that_will_not_end_are_ended_and_what_they_said_is_kept(scene: Scene) -> None:
    said: dict[str, str] = {}

    async def run(command: str) -> None:
        arguments = {"command": f"echo begun; {command}", "timeoutMs": 2000}
        said[command] = str((await scene.outcome("bash", arguments)).output)

    async with anyio.create_task_group() as tasks:
        for command in (
            STUBBORN,
            f"setsid sh -c '{STUBBORN.replace(chr(39), chr(34))}' & wait",
            "read line; echo $line; cat",
        ):
            tasks.start_soon(run, command)
    assert {command: text for command, text in said.items() if "begun" not in text} == {}
    await eventually_async(lambda: not running_with(f"71{MINE}"), PATIENCE_S)
    flood = await scene.fail("bash", command="yes abcdefgh", timeoutMs=1000)
    assert "abcdefgh" in flood
    assert len(flood) < MIB
    assert "1" in await scene.do("bash", command=f"(sleep 72{MINE}; echo late) & echo 1")
    await eventually_async(lambda: not running_with(f"72{MINE}"), PATIENCE_S)


async def test_background_processes_end_whole_however_stubborn(scene: Scene) -> None:
    stubborn = STUBBORN.replace(f"71{MINE}", f"74{MINE}")
    for tool in ("process", "bg-process"):
        started = await scene.do(tool, action="start", command=f"{stubborn} & {stubborn}")
        job = next(word.strip('",.:()') for word in started.split() if word.strip('",.:()').startswith(("job-", "bg-")))
        await eventually_async(lambda: len(running_with(f"74{MINE}")) >= 2, PATIENCE_S)
        await scene.do(tool, action="stop", id=job)
        assert not running_with(f"74{MINE}")
        await scene.fail(tool, action="poll", id="job-99")
        await scene.fail(tool, action="start")


async def test_a_call_that_is_cancelled_midway_leaves_nothing(scene: Scene) -> None:
    scene.put("huge.txt", b"line\n" * (8 * MIB))
    is_midway: dict[str, Callable[[], object]] = {"bash": lambda: running_with(f"sleep 73{MINE}")}
    for tool, arguments in (
        ("bash", {"command": f"sleep 73{MINE}"}),
        ("read", {"path": "huge.txt", "offset": 8 * MIB}),
        ("grep", {"pattern": "line", "path": "huge.txt"}),
    ):
        token = CancelToken()
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:

                async def call(
                    tool: str = tool, arguments: dict[str, object] = arguments, token: CancelToken = token
                ) -> None:
                    await scene.session.box.runner.run(ToolCall("1", tool, arguments), token)

                tasks.start_soon(call)
                await anyio.sleep(0.05)
                await eventually_async(is_midway.get(tool, lambda: True), PATIENCE_S)
                token.cancel()
    await eventually_async(lambda: not running_with(f"73{MINE}"), PATIENCE_S)
    assert threading.active_count() < 200
