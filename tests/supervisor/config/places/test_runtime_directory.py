"""A runtime directory lives as long as its process, and everybody can tell."""

import errno
import os
from pathlib import Path

import pytest
from support.processes.running import python_child

from quarterdeck.config.places import paths, runtime_directory
from quarterdeck.config.places.runtime_directory import (
    RuntimeDirectory,
    find_serving,
    live_digests,
    read_serving,
    sweep_stale,
)

DIGEST = "0123456789ab"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return paths.make_private_dir(tmp_path / "root")


def abandon(directory: RuntimeDirectory) -> Path:
    os.close(directory._lock)
    directory._lock = -1
    return directory.path


def test_a_directory_is_private_and_goes_with_its_owner(root: Path) -> None:
    """Others could connect to a socket, or a closed process would leave its own behind."""
    with RuntimeDirectory.create(DIGEST, root) as directory:
        assert directory.path.stat().st_mode & 0o777 == 0o700
        assert (directory.path / "lock").stat().st_mode & 0o777 == 0o600
        assert directory.path.name.startswith(f"qd-{DIGEST}-{os.getpid()}-")
        (directory.path / "some.sock").touch()
    directory.close()
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("what", ["mkdir", "open"])
def test_a_root_that_cannot_be_written_to_has_a_sentence_and_keeps_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, number: int, what: str
) -> None:
    """A user would read an error number, and find half-made directories later."""
    real = os.open

    def fail(path: object, *arguments: object, **more: object) -> int:
        if what == "mkdir" or str(path).endswith("lock"):
            raise OSError(number, os.strerror(number), str(path))
        return real(path, *arguments, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(os, what, fail)
        with pytest.raises(paths.UnusableDirectoryError) as caught:
            RuntimeDirectory.create(DIGEST, root)
    said = str(caught.value)
    assert str(root) in said
    assert os.strerror(number) in said
    assert said.endswith("or set QUARTERDECK_RUNTIME_DIR to another directory")
    assert "Errno" not in said
    assert list(root.iterdir()) == []


def test_a_deck_that_cannot_be_announced_has_a_sentence(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk at the last step of a start would be an error of ours with a number."""
    with RuntimeDirectory.create(DIGEST, root) as directory, monkeypatch.context() as patch:

        def fail(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(root))

        patch.setattr(os, "replace", fail)
        with pytest.raises(paths.UnusableDirectoryError, match="there is no room in"):
            directory.announce([Path("/a.json")], "1")


def test_a_program_that_we_start_does_not_keep_the_lock(root: Path) -> None:
    """A server that outlives a killed supervisor would make the dead look alive."""
    with RuntimeDirectory.create(DIGEST, root) as directory:
        assert not os.get_inheritable(directory._lock)


def test_only_directories_of_the_dead_are_swept(root: Path) -> None:
    """Sweeping would cut the sockets of a running supervisor, or rubbish would pile up."""
    dead = abandon(RuntimeDirectory.create(DIGEST, root))
    unlocked = root / f"qd-{DIGEST}-1-00000000"
    unlocked.mkdir(mode=0o700)
    (root / "somebody-elses").mkdir()
    with RuntimeDirectory.create(DIGEST, root) as live:
        assert set(sweep_stale(root)) == {dead, unlocked}
        assert {path.name for path in root.iterdir()} == {live.path.name, "somebody-elses"}
        assert sweep_stale(root) == ()


def test_sweeping_never_follows_a_link(root: Path, tmp_path: Path) -> None:
    """A planted link would make us remove what it points to."""
    precious = paths.make_private_dir(tmp_path / "precious")
    (precious / "file").touch()
    (root / f"qd-{DIGEST}-1-00000000").symlink_to(precious)
    dead = abandon(RuntimeDirectory.create(DIGEST, root))
    (dead / "inside").symlink_to(precious)
    assert sweep_stale(root) == (dead,)
    (tmp_path / "rootlink").symlink_to(root)
    abandon(RuntimeDirectory.create(DIGEST, root))
    assert sweep_stale(tmp_path / "rootlink") == ()
    assert (precious / "file").exists()


def test_a_half_made_directory_is_swept_only_when_it_is_old(root: Path) -> None:
    """A directory could vanish below a process that is just making it."""
    staging = root / f".qd-{DIGEST}-1-00000000"
    staging.mkdir(mode=0o700)
    assert sweep_stale(root) == ()
    os.utime(staging, (0, 0))
    assert sweep_stale(root) == (staging,)


def test_sweeping_where_nothing_is_does_nothing(tmp_path: Path) -> None:
    """The very first start would fail."""
    assert sweep_stale(tmp_path / "missing") == ()


@pytest.mark.process
def test_a_killed_process_is_swept_and_not_found(root: Path) -> None:
    """After a SIGKILL the commands would talk to a dead process for ever."""
    program = (
        "import sys; from pathlib import Path\n"
        "from quarterdeck.config.places.runtime_directory import RuntimeDirectory\n"
        f"directory = RuntimeDirectory.create({DIGEST!r}, Path(sys.argv[1]))\n"
        "directory.announce([Path('/a.json')], '1')\n"
        "print(directory.path, flush=True); sys.stdin.read()"
    )
    with python_child(program, root) as child:
        path = Path(child.read_line().decode())
        assert find_serving(DIGEST, root) == path
        assert sweep_stale(root) == ()
        child.kill()
        assert find_serving(DIGEST, root) is None
        assert sweep_stale(root) == (path,)


def test_a_process_is_found_only_once_it_serves_this_configuration(root: Path, tmp_path: Path) -> None:
    """A command would connect too early, or to the servers of another file."""
    config = tmp_path / "mcp.json"
    with RuntimeDirectory.create(DIGEST, root) as directory:
        assert find_serving(DIGEST, root) is None
        assert read_serving(directory.path) is None
        serving = directory.announce([config], "1.2.3")
        assert find_serving(DIGEST, root) == directory.path
        assert find_serving("f" * 12, root) is None
        assert read_serving(directory.path) == serving
        assert (serving.pid, serving.digest, serving.version) == (os.getpid(), DIGEST, "1.2.3")
        assert serving.config_paths == (str(config.resolve()),)
        assert (directory.path / "serve.json").stat().st_mode & 0o777 == 0o600
    assert find_serving(DIGEST, root) is None


def test_of_several_the_last_one_started_is_found(root: Path) -> None:
    """Restarting beside a hung process would keep talking to the hung one."""
    with RuntimeDirectory.create(DIGEST, root) as first, RuntimeDirectory.create(DIGEST, root) as second:
        for directory, year in ((second, b"2001"), (first, b"2002")):
            directory.announce([], "1")
            metadata = directory.path / "serve.json"
            started = read_serving(directory.path)
            assert started is not None
            metadata.write_bytes(metadata.read_bytes().replace(started.started_at[:4].encode(), year))
        assert find_serving(DIGEST, root) == first.path


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff", b'{"pid": "x"}', b"[" * 10_000])
def test_bad_metadata_is_no_serving_process(root: Path, content: bytes) -> None:
    """A damaged file would crash every command."""
    with RuntimeDirectory.create(DIGEST, root) as directory:
        directory.announce([], "1")
        (directory.path / "serve.json").write_bytes(content)
        assert find_serving(DIGEST, root) is None


def test_a_socket_path_that_no_system_takes_is_refused(root: Path) -> None:
    """Binding would fail with a message that names neither the path nor the limit."""
    with RuntimeDirectory.create(DIGEST, root) as directory:
        with pytest.raises(ValueError, match="longer than the 103 bytes"):
            directory.socket_path("x" * 100)
        short = RuntimeDirectory(Path("/run/qd"), DIGEST, -1)
        assert short.socket_path("link.sock") == Path("/run/qd/link.sock")


def test_an_unsafe_root_is_refused(tmp_path: Path) -> None:
    """Our sockets would lie where others can replace them."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(paths.UnsafePathError):
        RuntimeDirectory.create(DIGEST, tmp_path / "open")


def test_a_spare_root_goes_with_its_last_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test and every long path would leave a directory behind in /tmp."""
    monkeypatch.setattr(paths, "_SHORT_ROOT", tmp_path)
    monkeypatch.setenv("QUARTERDECK_RUNTIME_DIR", "/" + "x" * 200)
    with RuntimeDirectory.create(DIGEST) as first:
        with RuntimeDirectory.create(DIGEST):
            assert len(list(first.path.parent.iterdir())) == 2
        assert first.path.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_a_root_that_vanishes_meanwhile_is_made_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes, one leaving and one coming, would sometimes fail the newcomer."""
    make, attempts = runtime_directory.make_locked_directory, list[Path]()

    def lose_the_root_once(path: Path) -> int:
        attempts.append(path)
        if len(attempts) == 1:
            path.parent.rmdir()
        return make(path)

    monkeypatch.setattr(runtime_directory, "make_locked_directory", lose_the_root_once)
    with RuntimeDirectory.create(DIGEST, root) as directory:
        assert directory.path.is_dir()
    assert len(attempts) == 2


def test_a_serve_is_found_by_the_native_tools_that_it_offers(root: Path) -> None:
    """A command that may only look would be run by a serve that changes files."""
    with RuntimeDirectory.create(DIGEST, root) as plain, RuntimeDirectory.create(DIGEST, root) as native:
        native.announce([], "1", "0123456789ab")
        plain.announce([], "1")
        assert find_serving(DIGEST, root, native="0123456789ab") == native.path
        assert find_serving(DIGEST, root, native="ba9876543210") is None
        assert find_serving(DIGEST, root) in (plain.path, native.path)


def test_the_live_are_found_whether_they_serve_or_not(root: Path) -> None:
    """The home of a server would be removed while a command uses it."""
    abandon(RuntimeDirectory.create("ba9876543210", root))
    with RuntimeDirectory.create(DIGEST, root) as directory:
        assert live_digests([root]) == {DIGEST}
        directory.announce_homes(["1" * 12])
        directory.announce_homes(["2" * 12, "1" * 12])
        assert live_digests([root]) == {DIGEST, "1" * 12, "2" * 12}
    assert live_digests([root]) == frozenset()
