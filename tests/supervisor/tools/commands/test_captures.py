"""The files that keep what background commands write: complete, bounded, and never through what a command planted."""

import os
from pathlib import Path

import pytest
from support.waiting import eventually_async

from quarterdeck.tools.commands import captures as module
from quarterdeck.tools.commands.captures import MAX_CAPTURE_BYTES, Capture, CaptureDirectory


def written(file: Capture) -> bytes:
    return Path(file.path).read_bytes()


async def closed(*files: Capture) -> None:
    """Wait until all is written."""
    for file in files:
        await file.close()


async def test_a_file_has_a_size_cap_and_says_when_it_is_reached(tmp_path: Path) -> None:
    """A server that logs for days would fill the disk."""
    directory = CaptureDirectory(str(tmp_path / "captures"))
    out, err = directory.open("bg-1")
    piece = bytes(1 << 20)
    for number in range(1, MAX_CAPTURE_BYTES // len(piece) + 4):
        out.feed(piece)
        expected = min(MAX_CAPTURE_BYTES, len(piece) * number)
        await eventually_async(lambda expected=expected: os.path.getsize(out.path) >= expected)  # type: ignore[misc]
    await closed(out, err)
    note = b"\n[what follows was not kept: 16,777,216 bytes are the most]\n"
    assert written(out) == bytes(MAX_CAPTURE_BYTES) + note
    directory.close()


async def test_a_slow_disk_costs_output_not_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood would pile up in memory while the disk is busy."""
    monkeypatch.setattr(module, "MAX_PENDING_BYTES", 10)
    directory = CaptureDirectory(str(tmp_path / "captures"))
    out, err = directory.open("bg-1")
    out.feed(b"0123456789")
    out.feed(b"lost")
    await eventually_async(lambda: written(out) == b"0123456789")
    out.feed(b"end")
    await closed(out, err)
    assert written(out) == b"0123456789\n[4 bytes were not kept: the disk was too slow]\nend"
    directory.close()


async def test_a_link_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    """A command could have us write wherever its user may."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / ".indusvx-bg").symlink_to(outside)
    directory = CaptureDirectory(str(tmp_path / ".indusvx-bg"))
    with pytest.raises(OSError, match=r"\.indusvx-bg"):
        directory.open("bg-1")
    directory.close()
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("target", ["existing", "missing"])
async def test_a_link_in_place_of_a_file_is_not_followed(tmp_path: Path, target: str) -> None:
    """A command could have us overwrite a file of its user's."""
    precious = tmp_path / "existing"
    precious.write_text("precious")
    folder = tmp_path / "captures"
    folder.mkdir()
    (folder / "bg-1.out").symlink_to(tmp_path / target)
    directory = CaptureDirectory(str(folder))
    out, err = directory.open("bg-1")
    out.feed(b"written")
    await closed(out, err)
    assert precious.read_text() == "precious"
    assert not (tmp_path / "missing").exists()
    assert out.path == str(folder / "bg-1.2.out")
    directory.close()
    assert os.listdir(folder) == ["bg-1.out"]


async def test_a_directory_that_is_swapped_for_a_link_meanwhile_changes_nothing(tmp_path: Path) -> None:
    """A command that waits for its moment could do what one that plants a link before cannot."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "bg-1.out").write_text("precious")
    directory = CaptureDirectory(str(tmp_path / "captures"))
    first = directory.open("bg-1")
    (tmp_path / "captures").rename(tmp_path / "moved")
    (tmp_path / "captures").symlink_to(outside)
    second = directory.open("bg-2")
    await closed(*first, *second)
    directory.close()
    assert os.listdir(outside) == ["bg-1.out"]
    assert (outside / "bg-1.out").read_text() == "precious"


async def test_a_directory_full_of_planted_files_is_said(tmp_path: Path) -> None:
    """A start would look for a free name for ever."""
    for number in range(1, 40):
        (tmp_path / ("bg-1.out" if number == 1 else f"bg-1.{number}.out")).touch()
    directory = CaptureDirectory(str(tmp_path))
    with pytest.raises(FileExistsError, match="remove it"):
        directory.open("bg-1")
    directory.close()
    assert os.listdir(tmp_path)


async def test_the_files_belong_to_whoever_owns_the_place(tmp_path: Path) -> None:
    """A command that runs as the workspace's owner could not read what it wrote."""
    if os.geteuid() == 0:
        os.chown(tmp_path, 12345, 12345)
    directory = CaptureDirectory(str(tmp_path / "captures"))
    out, err = directory.open("bg-1")
    assert len({os.stat(place).st_uid for place in (tmp_path, tmp_path / "captures", out.path, err.path)}) == 1
    await closed(out, err)
    directory.close()
