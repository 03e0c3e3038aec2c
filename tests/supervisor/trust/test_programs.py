"""The programs of local servers: which files count, how they are read, what is recorded, held and known."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.trust.approvals import MemoryRecorder, row

from quarterdeck.ledger.events.events import Approved, Authority, Seen
from quarterdeck.ledger.events.fold import Entry
from quarterdeck.trust import programs as programs_module
from quarterdeck.trust.common_record import CommonRecord
from quarterdeck.trust.programs import Programs, read_fingerprint
from quarterdeck_protocol.configs import StdioServerConfig, StreamableHttpServerConfig, TrustMode
from quarterdeck_protocol.faults import ProtocolFault

SCOPE = "user"
ENVIRON = {"PATH": os.environ["PATH"]}


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of these tests count as written long ago."""
    monkeypatch.setattr(programs_module, "FRESH_NS", 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A program that is a script, with a script and data beside it."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "script.py").write_text("1\n")
    return tmp_path


def config_of(folder: Path, args: Sequence[str] = (), **fields: Any) -> StdioServerConfig:
    return StdioServerConfig(id="s", command=str(folder / "program"), args=tuple(args), **fields)


def files_of(config: StdioServerConfig) -> list[str]:
    found = read_fingerprint(config, ENVIRON)
    assert found is not None
    return [os.path.basename(path) for path in found.files]


def test_the_program_and_the_regular_files_that_its_arguments_name_count(folder: Path) -> None:
    """An interpreter would stand for every script, or a folder be walked, or a pipe block the start."""
    (folder / "settings.json").write_text("{}")
    (folder / "tree").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to(folder / "script.py")
    named = [str(folder / each) for each in ("tree", "pipe", "absent", "link")]
    args = ["--flag", "script.py", *named, f"--config={folder}/settings.json", "/" + "x" * 5000]
    assert files_of(config_of(folder, args, cwd=str(folder))) == ["program", "script.py", "link", "settings.json"]
    assert files_of(config_of(folder, args)) == ["program", "link", "settings.json"]


def test_at_most_so_many_files_count(folder: Path) -> None:
    """A row with a thousand files would make its server start slowly."""
    names = [f"{number}.txt" for number in range(30)]
    for name in names:
        (folder / name).write_text(name)
    found = files_of(config_of(folder, names, cwd=str(folder)))
    assert found == ["program", *names[: programs_module.MAX_FILES]]


def test_data_that_the_server_may_write_is_no_program_unless_it_comes_first(folder: Path) -> None:
    """Each start would be reported as changed by a server with a database, or a script that it may edit not count."""
    (folder / "notes.db").write_text("")
    args = ["script.py", "notes.db"]
    config = config_of(folder, args, cwd=str(folder), sandbox={"write": [str(folder)]})
    assert files_of(config) == ["program", "script.py"]


def test_a_command_that_is_not_there_has_no_fingerprint(folder: Path) -> None:
    """The start's own fault would be hidden by another one."""
    (folder / "program").unlink()
    assert read_fingerprint(config_of(folder), ENVIRON) is None


def test_a_known_stamp_saves_the_reading_and_fresh_times_are_not_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start would read 100 MB of node, or a file written twice within one tick keep its hash."""
    found = read_fingerprint(config_of(folder), ENVIRON)
    assert found is not None
    [mark] = found.files.values()
    again = read_fingerprint(config_of(folder), ENVIRON, {mark.stamp: "known"})
    assert again is not None
    assert [each.sha256 for each in again.files.values()] == ["known"]
    monkeypatch.setattr(programs_module, "FRESH_NS", 10**18)
    fresh = read_fingerprint(config_of(folder), ENVIRON)
    assert fresh is not None
    assert list(fresh.files.values()) == [replace(mark, mtime_ns=0, ctime_ns=0)]


def test_a_file_that_is_too_large_to_be_hashed_counts_by_its_size_and_times(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start would read for minutes."""
    monkeypatch.setattr(programs_module, "MAX_FILE_BYTES", 4)
    found = read_fingerprint(config_of(folder), ENVIRON)
    assert found is not None
    [mark] = found.files.values()
    assert (mark.sha256, mark.size, mark.ctime_ns > 0) == ("", 10, True)


@pytest.mark.parametrize("mode", TrustMode)
async def test_a_program_is_approved_at_its_first_start_and_compared_later(
    folder: Path, mode: TrustMode, caplog: pytest.LogCaptureFixture
) -> None:
    """A changed program would run unseen under `baseline`, or at all under `strict`."""
    config = config_of(folder, ["script.py"], cwd=str(folder), trust=mode)
    recorder = MemoryRecorder()
    programs = Programs(recorder, CommonRecord(), ENVIRON)
    await programs.check(config, SCOPE)
    await programs.check(config, SCOPE)
    assert [type(event) for event in recorder.events] == [Seen, Approved]
    assert recorder.events[-1].by is Authority.BASELINE
    assert programs.is_known(config, SCOPE)
    (folder / "script.py").write_text("2\n")
    assert not programs.is_known(config, SCOPE)
    path = str(folder / "script.py")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            if mode is TrustMode.STRICT:
                with pytest.raises(ProtocolFault, match=f"{path} changed since approved") as caught:
                    await programs.check(config, SCOPE)
                assert caught.value.code == "program_changed"
            else:
                await programs.check(config, SCOPE)
    assert len(caplog.messages) == (mode is TrustMode.BASELINE)
    assert programs.changed(SCOPE, "s") == (() if mode is TrustMode.OPEN else (path,))
    assert programs.is_known(config, SCOPE) is (mode is TrustMode.OPEN)
    seen = recorder.events[-1]
    assert isinstance(seen, Approved if mode is TrustMode.OPEN else Seen)
    await recorder.record(
        [Approved(scope=SCOPE, server="s", subject=seen.subject, hash=seen.hash, by=Authority.PERSON)], {}
    )
    await programs.check(config, SCOPE)
    assert programs.changed(SCOPE, "s") == ()
    assert programs.is_known(config, SCOPE)


async def test_what_is_known_outlasts_this_process_and_needs_the_same_command_line(folder: Path) -> None:
    """Servers would start for nothing after each restart, or sleep with the approval of another command line."""
    config, recorder = config_of(folder), MemoryRecorder()
    configured = row(config)
    scope = configured.scope
    await Programs(recorder, CommonRecord(), ENVIRON).check(config, scope)
    later = Programs(recorder, CommonRecord(), ENVIRON)
    assert not later.is_known(config, scope)
    await later.load([configured])
    assert later.is_known(config, scope)
    assert not later.is_known(config_of(folder, ["--other"]), scope)
    (folder / "program").unlink()
    assert not later.is_known(config, scope)


async def test_a_ledger_that_cannot_be_written_stops_no_start_but_a_changed_strict_one(folder: Path) -> None:
    """A full disk would stop all servers, or let a changed program through."""
    config, recorder = config_of(folder, trust=TrustMode.STRICT), MemoryRecorder()
    programs = Programs(recorder, CommonRecord(), ENVIRON)
    await programs.check(config, SCOPE)
    recorder.is_full = True
    (folder / "program").write_text("#!/bin/sh\n:\n")
    with pytest.raises(ProtocolFault, match="changed since approved"):
        await programs.check(config, SCOPE)
    assert programs.changed(SCOPE, "s") == ()


@pytest.mark.parametrize("has_seal", [True, False])
def test_a_sealed_server_is_known_by_its_seal_and_a_remote_one_always(folder: Path, has_seal: bool) -> None:
    """A sealed server would be started for nothing, or one without its code be left asleep."""

    def asked(_: StdioServerConfig, entry: Entry) -> bool:
        assert entry == Entry()
        return has_seal

    programs = Programs(MemoryRecorder(), CommonRecord(), ENVIRON, asked)
    assert programs.is_known(config_of(folder), SCOPE) is has_seal
    assert programs.is_known(StreamableHttpServerConfig(id="far", url="http://localhost/mcp"), SCOPE)
