"""Which seal a server runs from: what the ledger names, what is made for it, and what is refused."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.seals import FILES, manifest, write
from support.trust.approvals import MemoryRecorder

from quarterdeck.fleet.sealed_start import SealedStart
from quarterdeck.ledger.events.events import Authority, Sealed
from quarterdeck.seals.manifest import Package, Program, SealError
from quarterdeck.seals.request import PackageRequest
from quarterdeck.seals.store import Seal, SealStore
from quarterdeck.trust.common_record import CommonRecord
from quarterdeck.trust.judge.server_rows import LockedSeal
from quarterdeck.trust.seals import PackageSeals, sealed_event, wanted_package
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.faults import Delivery, ProtocolFault

SCOPE = "/home/me/mcp.json"
PROGRAM = Program("server", "server", "node_modules/server/bin.js", ("node",))


def config(*args: str, **fields: Any) -> StdioServerConfig:
    return StdioServerConfig(id="notes", command="npx", args=args or ("-y", "server"), **fields)


class Installer:
    """Installs `files` into a store, and counts how often; what was asked for is in `asked`."""

    def __init__(self, store: SealStore) -> None:
        self.store = store
        self.files = FILES
        self.script = ""
        self.fails: SealError | None = None
        self.asked: list[tuple[str, str]] = []

    async def __call__(self, request: PackageRequest, known: LockedSeal | None) -> Seal:
        self.asked.append((request.words, known.lock if known is not None else ""))
        await asyncio.sleep(0)
        if self.fails is not None:
            raise self.fails
        made = manifest()
        packages = (Package("server", "1.0.0", "sha512-a", 30, script=self.script),)
        made = msgspec.structs.replace(
            made, words=request.words, programs=(PROGRAM,), packages=packages, lock="the lock"
        )
        with self.store.making() as place:
            write(place / "tree", self.files)
            return self.store.adopt(place, made)


class At:
    """The seals of a user with one row, and what is recorded of them."""

    def __init__(self, root: Path) -> None:
        self.recorder = MemoryRecorder()
        self.store = SealStore(root / "seals")
        self.installer = Installer(self.store)
        (root / "bin").mkdir()
        self.path = str(root / "bin")
        (root / "bin" / "node").write_text("#!/bin/sh\n")
        (root / "bin" / "node").chmod(0o755)
        self.lock: Locked | None = None
        self._common = CommonRecord()

    async def open(self, row: StdioServerConfig | None = None) -> SealedStart | None:
        """Open the seal of the row, as its server starts."""
        seals = PackageSeals(
            self.recorder, self._common, self.store, {"PATH": self.path}, lock=self.lock, install=self.installer
        )
        return await seals.open(row or config(), SCOPE)

    @property
    def recorded(self) -> Sealed | None:
        return self.recorder.book.entry(SCOPE, "notes").seal


class Locked:
    """A `deck.lock` with one seal; see `Locks`."""

    def __init__(self, seal: LockedSeal) -> None:
        self.seal = seal

    def for_server(self, _: str) -> "Locked":
        return self

    def admits(self, _: object) -> bool:
        return True


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> At:
    monkeypatch.setattr("quarterdeck.seals.store.sync_file_system", lambda _: None)
    return At(tmp_path.resolve())


async def opened(at: At, row: StdioServerConfig | None = None) -> SealedStart:
    found = await at.open(row)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "row",
    [
        config(seal=False),
        config("git+https://example.com/server"),
        StdioServerConfig(id="notes", command="node", args=("server.js",)),
    ],
    ids=["its row says so", "no package", "no runner"],
)
async def test_what_is_not_sealed_runs_as_its_row_says(at: At, row: StdioServerConfig) -> None:
    """A server would be replaced by a package that its row does not name, or a user's no be ignored."""
    assert wanted_package(row) is None
    assert await at.open(row) is None
    assert (at.installer.asked, at.recorded) == ([], None)


async def test_a_first_start_seals_and_records_and_starts_the_program_without_its_runner(at: At) -> None:
    """The runner would fetch code at each start, into a folder that the server may write."""
    row = config("-y", "server", "--verbose", env={"LEVEL": "1"})
    found = await opened(at, row)
    [seal] = at.store.seals()
    assert found.config.command == f"{at.path}/node"
    assert found.config.args == (str(seal.tree / PROGRAM.target), "--verbose")
    assert found.config.sandbox.read == (str(seal.tree),)
    path = f"{seal.tree}/node_modules/.bin:{at.path}"
    assert found.config.env == {"LEVEL": "1", "PATH": path}
    assert (found.seal, found.package) == (seal.digest, "server 1.0.0 (npm)")
    assert at.recorded is not None
    assert (at.recorded.seal, at.recorded.by, at.recorded.words) == (seal.digest, Authority.BASELINE, "npx server")
    assert await at.recorder.document(at.recorded.lock) == b"the lock"


async def test_later_starts_and_other_rows_take_the_same_seal_without_an_index(at: At) -> None:
    """A new version would run because an index has one, or each row have a copy of its own."""
    first, second = await asyncio.gather(opened(at), opened(at, config("server", "other", "arguments")))
    third = await opened(at)
    assert first.seal == second.seal == third.seal
    assert len(at.installer.asked) == 1


async def test_a_seal_that_is_gone_is_installed_again_from_its_lock(at: At) -> None:
    """A removed seal would be replaced by whatever an index has today."""
    first = await opened(at)
    at.store.remove(first.seal)
    assert (await opened(at)).seal == first.seal
    assert at.installer.asked[1] == ("npx server", "the lock")
    at.store.remove(first.seal)
    at.installer.files = {**FILES, "node_modules/other/index.js": b"'evil'"}
    with pytest.raises(ProtocolFault, match="has other files here") as caught:
        await at.open()
    assert (caught.value.code, caught.value.delivery) == ("seal_changed", Delivery.NOT_SENT)
    assert at.recorded is not None
    assert at.recorded.seal == first.seal, "what is approved stays"


async def test_a_person_decides_what_runs_and_a_row_that_asks_for_another_package_gets_it(at: At) -> None:
    """An upgrade would not count, or a row keep running what it no longer asks for."""
    await opened(at)
    at.installer.files = {**FILES, "new": b"new"}
    newer = await at.installer(request("server@2.0.0"), None)
    event, documents = sealed_event(newer, SCOPE, "notes", Authority.PERSON, "npx server")
    await at.recorder.record([event], documents)
    assert (await opened(at)).seal == newer.digest
    await opened(at, config("server@1.0.0"))
    assert at.recorded is not None
    assert at.recorded.words == "npx server@1.0.0"


def request(*args: str) -> PackageRequest:
    found = wanted_package(config(*args))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lock: lock, None),
        (lambda lock: msgspec.structs.replace(lock, words="npx server@9"), "the row asks for npx server"),
        (lambda lock: msgspec.structs.replace(lock, digest="0" * 64), "has other files here"),
    ],
    ids=["the same", "another package", "other files"],
)
async def test_a_deck_lock_names_the_bytes_that_run(
    at: At, change: Callable[[LockedSeal], LockedSeal], words: str | None
) -> None:
    """Another machine would run other code than what was reviewed."""
    there = await at.installer(request("server"), None)
    at.store.remove(there.digest)
    at.lock = Locked(change(LockedSeal(there.digest, "npx server", "the lock")))
    if words is None:
        assert (await opened(at)).seal == there.digest
        assert at.installer.asked[-1] == ("npx server", "the lock")
        return
    with pytest.raises(ProtocolFault, match=words):
        await at.open()
    assert at.recorded is None


async def test_a_deck_lock_changes_nothing_that_was_approved_here(at: At) -> None:
    """A stranger's commit would replace the code that a user approved."""
    first = await opened(at)
    at.lock = Locked(LockedSeal("0" * 64, "npx server", "another lock"))
    with pytest.raises(ProtocolFault, match=f"and here {first.seal[:12]} runs"):
        await at.open()


async def test_a_failure_to_seal_is_told_with_its_remedy_and_tried_again(at: At) -> None:
    """A user would read that a handshake failed, where a name has a slip of the pen."""
    at.installer.fails = SealError("not_found", "there is no package", "check the package's name")
    with pytest.raises(ProtocolFault, match="there is no package") as caught:
        await at.open()
    assert (caught.value.code, caught.value.remedy) == ("seal_failed", "check the package's name")
    at.installer.fails = None
    assert (await opened(at)).seal


async def test_where_nothing_can_be_installed_safely_the_runner_runs_as_before(
    at: At, caplog: pytest.LogCaptureFixture
) -> None:
    """A machine without bubblewrap would start no package at all, or a sealed server run from what is not its seal."""
    at.installer.fails = SealError("no_sandbox", "the install sandbox cannot be had", "quarterdeck doctor")
    assert await at.open() is None
    assert "notes runs by its package runner" in caplog.text
    at.installer.fails = None
    at.store.remove((await opened(at)).seal)
    at.installer.fails = SealError("no_sandbox", "the install sandbox cannot be had", "quarterdeck doctor")
    with pytest.raises(ProtocolFault, match="cannot be had"):
        await at.open()


async def test_scripts_that_were_not_run_are_named_until_they_are(at: At) -> None:
    """A server that lacks its native part would only be said to have ended."""
    at.installer.script = "postinstall"
    assert (await opened(at)).unrun_scripts == ("server: postinstall",)


async def test_a_changed_file_and_a_removal_are_found_before_and_while_it_runs(at: At) -> None:
    """A server would run what nobody approved, or lose its files under its feet."""
    found = await opened(at)
    [seal] = at.store.seals()
    found.check()
    with found.hold(), pytest.raises(SealError, match="in use"):
        at.store.remove(seal.digest)
    program = seal.tree / PROGRAM.target
    program.chmod(0o644)
    program.write_bytes(b"#!/usr/bin/env node\nevil()\n")
    with pytest.raises(ProtocolFault, match=r"node_modules/server/bin\.js") as caught:
        found.check()
    assert caught.value.code == "seal_changed"
