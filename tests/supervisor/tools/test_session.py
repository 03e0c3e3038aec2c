"""What one client's native tools own, with real files and real commands."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
import pytest
from support.config.places import use_places
from support.processes.identities import give_to_commands
from support.processes.leftovers import no_leftovers, running_with
from support.sandbox.machine_facts import MOUNT_NAMESPACE_ONLY
from support.waiting import eventually_async

from quarterdeck.common.tool_names import Profile
from quarterdeck.config.native_tools import NativeSettings, NativeWish
from quarterdeck.config.places.paths import state_dir, workspace_paths
from quarterdeck.config.web_policy import FetchPolicy
from quarterdeck.tools.card_types import DeckFault, DeckFaultKind
from quarterdeck.tools.commands.command_policy import CommandPolicy
from quarterdeck.tools.session import DeckSession, open_deck_session
from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.policy_values import NetworkMode
from quarterdeck_protocol.tools import CancelToken, ToolCall, ToolOutcome

pytestmark = pytest.mark.process

PATIENCE_S = 60.0


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of an ordinary user's, and a state directory of the test's own."""
    use_places(monkeypatch, tmp_path)
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "file.txt").write_text("hello\n")
    give_to_commands(folder, folder / "file.txt")
    with no_leftovers():
        yield folder


def session_in(workspace: Path, **fields: object) -> AbstractAsyncContextManager[DeckSession]:
    wish = NativeWish(**{"profile": Profile.ALL, "workspace": workspace, **fields})

    @asynccontextmanager
    async def opened() -> AsyncIterator[DeckSession]:
        with anyio.fail_after(PATIENCE_S):
            async with open_deck_session(wish, allow_unsandboxed=True) as session:
                yield session

    return opened()


async def run(session: DeckSession, name: str, **arguments: object) -> ToolOutcome:
    return await session.box.runner.run(ToolCall("1", name, arguments), CancelToken())


async def text(session: DeckSession, name: str, **arguments: object) -> str:
    outcome = await run(session, name, **arguments)
    assert not outcome.is_error, outcome.output
    return str(outcome.output)


def names(session: DeckSession) -> list[str]:
    return [descriptor.name for descriptor in session.box.descriptors()]


async def test_a_session_has_the_tools_of_its_profile_or_those_that_were_named(workspace: Path) -> None:
    """An agent that may only look would be given a shell."""
    async with session_in(workspace, profile=Profile.AUTHORING) as looking:
        assert names(looking) == ["read", "ls", "grep", "find", "websearch", "webfetch", "todo_read"]
        assert (await run(looking, "bash", command="true")).is_error
    async with session_in(workspace, tools=("memory", "read")) as chosen:
        assert names(chosen) == ["read", "memory"]
        assert (await run(chosen, "bash", command="true")).is_error


async def test_a_tool_that_is_unknown_or_not_in_the_profile_is_a_fault(workspace: Path) -> None:
    """A typing error would leave an agent without the tool, and nobody would know."""
    with pytest.raises(DeckFault, match="did you mean 'read'") as unknown:
        async with session_in(workspace, tools=("raed",)):
            pass
    assert unknown.value.kind == DeckFaultKind.UNKNOWN_CAPABILITY
    with pytest.raises(DeckFault, match="'bash' is not in the profile 'read-only'"):
        async with session_in(workspace, profile=Profile.AUTHORING, tools=("bash",)):
            pass


async def test_files_are_those_of_the_workspace_and_of_allowed_directories(workspace: Path, tmp_path: Path) -> None:
    """An agent could read what its user never gave it."""
    allowed, private = tmp_path / "allowed", tmp_path / "private"
    for folder in (allowed, private):
        folder.mkdir()
        (folder / "x").write_text("content")
    async with session_in(workspace, allow_dirs=(allowed,)) as session:
        assert "hello" in await text(session, "read", path="file.txt")
        assert "content" in await text(session, "read", path=str(allowed / "x"))
        await text(session, "write", path=str(allowed / "new"), content="x")
        refused = await run(session, "read", path=str(private / "x"))
        assert refused.is_error
        assert str(workspace) in str(refused.output)


async def test_what_is_ours_is_nobodys_even_in_a_workspace_that_holds_it(workspace: Path, tmp_path: Path) -> None:
    """In a whole home an agent could read the token of the server that it uses, or rewrite its own checkpoints."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "token").write_text("secret")
    async with session_in(tmp_path) as session:
        for path in (state / "token", "state/token", session.paths.lock):
            refused = await run(session, "read", path=str(path))
            assert refused.is_error, path
            assert "secret" not in str(refused.output)
        assert (await run(session, "write", path=str(session.paths.memory), content="x")).is_error
        assert "hello" in await text(session, "read", path="workspace/file.txt")
        assert not (await run(session, "ls", path=str(session.paths.outputs))).is_error


async def test_our_code_is_nobodys_to_write_even_in_a_workspace_that_holds_it(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent's `write` to our packages, or to a `.pth`, would run at the next command, outside of any sandbox."""
    monkeypatch.setattr("quarterdeck.config.places.trusted_files.own_code", lambda: (str(workspace / ".venv"),))
    async with session_in(workspace) as session:
        for name in ("quarterdeck/__init__.py", "x.pth"):
            refused = await run(session, "write", path=f".venv/lib/{name}", content="x")
            assert refused.is_error
            assert "quarterdeck runs it" in str(refused.output)
    assert not (workspace / ".venv").exists()


@MOUNT_NAMESPACE_ONLY
async def test_commands_write_no_file_that_is_the_users_word_now(workspace: Path) -> None:
    """A `bash` would add a server that nothing confines to the configuration that lies in its workspace."""
    named: list[str] = []
    wish = NativeWish(profile=Profile.ALL, workspace=workspace)
    with anyio.fail_after(PATIENCE_S):
        async with open_deck_session(wish, allow_unsandboxed=True, trusted=lambda: named) as session:
            await text(session, "bash", command="echo one > file.txt")
            named.append(str(workspace / "file.txt"))
            await run(session, "bash", command="echo two > file.txt")
    assert (workspace / "file.txt").read_text() == "one\n"


async def test_commands_run_in_the_workspace_with_a_home_that_its_sessions_share(workspace: Path) -> None:
    """What one session installed, the next would install again; or it would land in the user's own home."""
    async with session_in(workspace) as one, session_in(workspace) as other:
        await text(one, "bash", command='echo shared > "$HOME/x"; echo made > made; touch "$TMPDIR/x"')
        assert "shared" in await text(other, "bash", command='cat "$HOME/x"')
        assert "No output" in await text(other, "bash", command='ls "$TMPDIR"')
        assert "made" in await text(other, "read", path="made")
        assert (workspace_paths(workspace).home / "x").read_text() == "shared\n"


async def test_commands_run_under_the_policy_of_the_configuration(workspace: Path) -> None:
    """A user's `native.sandbox` would be decoration."""
    policy = SandboxPolicy(network=NetworkMode.NONE, limits={"file_size_bytes": 1 << 20})
    async with session_in(workspace, settings=NativeSettings(sandbox=policy)) as session:
        assert (await run(session, "bash", command="exec head -c 3000000 /dev/zero > big")).is_error
    assert (workspace / "big").stat().st_size == 1 << 20


async def test_pages_are_fetched_under_the_policy_of_the_configuration(workspace: Path) -> None:
    """A user could not let an agent look at the server that it started; or each could look at everybody's."""
    settings = NativeSettings(webfetch=FetchPolicy(allow=("127.0.0.1:9",)))
    async with session_in(workspace) as closed, session_in(workspace, settings=settings) as opened:
        refused = await run(closed, "webfetch", url="http://127.0.0.1:18080/")
        assert "native.webfetch.allow" in str(refused.output)
        for url in ("http://127.0.0.1:18080/", "http://127.0.0.2:9/"):
            assert "native.webfetch.allow" in str((await run(opened, "webfetch", url=url)).output)
        assert "native.webfetch.allow" not in str((await run(opened, "webfetch", url="http://127.0.0.1:9/")).output)


async def test_sessions_share_neither_checklists_nor_what_they_have_read(workspace: Path) -> None:
    """One agent would overwrite what another has changed, unseen."""
    async with session_in(workspace) as one, session_in(workspace) as other:
        await text(one, "todo_set", items=[{"id": "1", "text": "mine", "status": "active"}])
        assert "mine" in await text(one, "todo_read")
        assert "mine" not in await text(other, "todo_read")
        await text(one, "read", path="file.txt")
        edit = {"path": "file.txt", "oldText": "hello", "newText": "bye"}
        unread = await run(other, "edit", **edit)
        assert unread.is_error
        assert "read" in str(unread.output)
        await text(one, "edit", **edit)


async def test_what_was_changed_and_noted_stays_after_the_end_and_the_rest_goes(workspace: Path) -> None:
    """An edit could not be undone the next day, or a disk would fill."""
    async with session_in(workspace) as session:
        await text(session, "read", path="file.txt")
        await text(session, "write", path="file.txt", content="new")
        await text(session, "memory", action="append", content="a note")
        cut = await text(session, "bash", command="seq 1 40000")
        kept = Path(cut.partition("the full text is in ")[2].partition("]")[0])
        assert kept.parent == session.paths.outputs
        assert "20001" in await text(session, "read", path=str(kept), offset=20001, limit=2)
        assert (await run(session, "write", path=str(kept), content="x")).is_error
    left = sorted(path.name for path in session.paths.directory.iterdir())
    assert left == ["checkpoints", "lock", "memory.md"]
    assert session.paths.memory.read_text() == "a note"


async def test_the_end_stops_what_runs_in_the_background(workspace: Path) -> None:
    """A server that an agent started would hold its port for ever."""
    async with session_in(workspace) as session:
        for tool in ("bg-process", "process"):
            await text(session, tool, action="start", command="echo up; (setsid sleep 4721.25 &); sleep 4721.25")
        await eventually_async(lambda: len(running_with("sleep 4721.25")) >= 4)
        assert any(session.paths.captures.iterdir())
    assert not running_with("sleep 4721.25")
    assert not session.paths.directory.exists()
    assert not (workspace / ".indusvx-bg").exists()


async def test_cancelling_does_not_cut_the_end_short(workspace: Path) -> None:
    """A second Ctrl-C would leave processes behind."""
    opened = anyio.Event()

    async def hold() -> None:
        async with session_in(workspace) as session:
            await text(session, "bg-process", action="start", command="exec sleep 4722.25")
            opened.set()
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold)
        await opened.wait()
        tasks.cancel_scope.cancel()
    assert not running_with("sleep 4722.25")
    assert list(workspace_paths(workspace).sessions.iterdir()) == []


async def test_opening_finds_out_nothing_about_commands(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every client would wait for what only those that run commands need."""

    def fail(_: CommandPolicy) -> None:
        raise AssertionError("a session looked for the user's tools before any command")

    monkeypatch.setattr(CommandPolicy, "setup", fail)
    async with session_in(workspace) as session:
        assert "hello" in await text(session, "read", path="file.txt")


@pytest.mark.parametrize("field", ["workspace", "allow_dirs"])
async def test_a_directory_that_is_gone_or_our_own_is_a_fault(workspace: Path, tmp_path: Path, field: str) -> None:
    inner = state_dir() / "ledger"
    inner.mkdir(parents=True)
    for path, why in ((tmp_path / "gone", "is not a directory"), (inner, "belongs to quarterdeck itself")):
        with pytest.raises(DeckFault, match=f"{path} {why}") as refused:
            async with session_in(**{"workspace": workspace, field: path if field == "workspace" else (path,)}):
                pass
        assert refused.value.kind == DeckFaultKind.BACKEND
    assert not (tmp_path / "gone").exists()


async def test_a_state_directory_that_others_may_use_is_a_fault(workspace: Path) -> None:
    """Others could read what the agent sees, and change what can be undone."""
    paths = workspace_paths(workspace).create()
    paths.sessions.chmod(0o777)
    with pytest.raises(DeckFault, match="chmod 700") as refused:
        async with session_in(workspace):
            pass
    assert refused.value.kind == DeckFaultKind.BACKEND


async def test_an_error_of_the_body_comes_out_as_it_is_and_nothing_is_left(workspace: Path) -> None:
    """Whoever embeds a session would have to take groups of errors apart."""
    with pytest.raises(LookupError, match="mine"):
        async with session_in(workspace):
            raise LookupError("mine")
    assert list(workspace_paths(workspace).sessions.iterdir()) == []


@pytest.mark.parametrize("which", ["workspace", "allow_dirs"])
async def test_a_directory_that_became_a_link_is_a_fault(workspace: Path, tmp_path: Path, which: str) -> None:
    """A command that may change the parent would give the next session the whole disk, and its file tools obey."""
    parent = tmp_path / "parent"
    inner = parent / "inner"
    inner.mkdir(parents=True)
    give_to_commands(parent, inner)
    fields = {"workspace": inner, "allow_dirs": (parent,)}
    if which == "allow_dirs":
        fields = {"workspace": workspace, "allow_dirs": (parent, inner)}
    async with session_in(**fields) as session:
        await text(session, "ls")
    inner.rename(parent / "moved")
    inner.symlink_to("/")
    with pytest.raises(DeckFault, match="symbolic link") as caught:
        async with session_in(**fields):
            pass
    assert caught.value.kind is DeckFaultKind.BACKEND
