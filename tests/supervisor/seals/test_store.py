"""The folder of seals: what is in it is whole, the same for all, and known again; whatever happens to its writers."""

import errno
import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from support.seals import FILES, manifest, sealed, write

from quarterdeck.common.locks import holding_directory
from quarterdeck.seals import store as module
from quarterdeck.seals.manifest import Bounds, Difference, Entry, SealError
from quarterdeck.seals.store import Seal, SealStore


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SealStore:
    monkeypatch.setattr(module, "sync_file_system", lambda _: None)
    return SealStore(tmp_path / "seals")


def left(tmp_path: Path) -> list[str]:
    return os.listdir(tmp_path / "seals" / ".making")


def changed(path: Path, data: bytes) -> None:
    """Change a sealed file by hand, and put its time back."""
    before = path.stat()
    os.chmod(path, 0o644)
    path.write_bytes(data)
    os.chmod(path, before.st_mode)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_tree_is_taken_in_and_found_by_its_digest(store: SealStore, tmp_path: Path) -> None:
    """A server could not be started from what was installed for it."""
    seal = sealed(store)
    assert store.open(seal.digest) == seal
    assert [store.has(each) for each in (seal.digest, "0" * len(seal.digest), "..")] == [True, False, False]
    assert store.seals() == [seal]
    assert (seal.tree / "node_modules/server/bin.js").read_bytes() == FILES["node_modules/server/bin.js"]
    assert (seal.manifest.files, seal.manifest.size) == (3, sum(map(len, FILES.values())))
    assert seal.folder.stat().st_mode & 0o777 == 0o700
    store.check(seal)
    assert store.verify(seal) == []
    assert left(tmp_path) == []


def test_the_same_files_are_one_seal_and_others_another(store: SealStore, tmp_path: Path) -> None:
    """Each row would have a copy of its own, or one package would run for another."""
    one, two = sealed(store), sealed(store)
    other = sealed(store, {**FILES, "node_modules/other/index.js": b"'evil'"}, version="1.0.1")
    assert (one, store.seals()) == (two, [one, other])
    assert left(tmp_path) == []


def test_the_same_files_for_another_interpreter_are_started_by_that(store: SealStore) -> None:
    """A server whose Python was replaced by an update could not be sealed again."""
    seals = []
    for interpreter in ("/old/python", "/new/python"):
        with store.making() as place:
            write(place / "tree", FILES)
            made = msgspec.structs.replace(manifest(), interpreter=interpreter)
            seals.append(store.adopt(place, made))
    old, new = seals
    assert (old.digest, new.manifest.interpreter) == (new.digest, "/new/python")
    assert store.seals() == [new]
    store.check(new)


def test_two_installations_at_once_end_with_one_seal(store: SealStore, tmp_path: Path) -> None:
    """Two daemons that start the same server would break each other's files."""
    found: list[Seal] = []
    stores = [store, SealStore(tmp_path / "seals")]
    versions = [FILES, FILES, {"other": b""}]
    threads = [
        threading.Thread(target=lambda files=files, at=at: found.append(sealed(stores[at % 2], files)))
        for at, files in enumerate(versions * 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert len({seal.digest for seal in found}) == len(store.seals()) == 2
    for seal in store.seals():
        assert store.verify(seal) == []
    assert left(tmp_path) == []


def test_an_attempt_that_fails_leaves_nothing(store: SealStore, tmp_path: Path) -> None:
    """Half an installation would stay on the disk for good."""
    with pytest.raises(KeyboardInterrupt), store.making() as place:
        write(place / "tree", FILES)
        os.chmod(place / "tree/node_modules", 0o500)
        raise KeyboardInterrupt
    assert (left(tmp_path), store.seals()) == ([], [])


def test_what_lives_is_left_alone_by_the_next_attempt(store: SealStore, tmp_path: Path) -> None:
    """An installation that takes its time would lose its files to the next one."""
    with store.making() as one:
        write(one / "tree", FILES)
        (tmp_path / "seals/.making/dead").mkdir()
        with SealStore(tmp_path / "seals").making() as other:
            assert (sorted(left(tmp_path)), (one / "tree").is_dir()) == (sorted([one.name, other.name]), True)


def test_the_files_are_on_the_disk_before_they_have_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut a seal would be there whose files are empty."""
    store = SealStore(tmp_path / "seals")
    seen: list[tuple[str, list[str]]] = []
    sync = module.sync_file_system

    def watched(folder: Path) -> None:
        seen.append((folder.name, store.digests()))
        sync(folder)

    monkeypatch.setattr(module, "sync_file_system", watched)
    store.check(sealed(store))
    assert seen == [("sealed", [])]
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "none")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("place", ["fsync", "rename", "mkdir", "fchmod"])
def test_a_full_disk_seals_nothing_and_says_so(
    store: SealStore, tmp_path: Path, number: int, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package would be started that lacks the end of its files, or a traceback would be all that is told."""

    def full(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with store.making() as making:
        write(making / "tree", FILES)
        with monkeypatch.context() as patched:
            patched.setattr(os, place, full)
            with pytest.raises(SealError) as caught:
                store.adopt(making, manifest())
    assert caught.value.code == "no_space"
    assert (left(tmp_path), store.digests()) == ([], [])


@pytest.mark.process
def test_a_process_that_is_killed_leaves_no_half_seal(tmp_path: Path) -> None:
    """A server would be started from files that were never complete, or attempts would pile up."""
    script = Path(__file__).with_name("dying.py")
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 30


def test_a_tree_is_verified_by_the_bounds_that_it_was_installed_with(store: SealStore, tmp_path: Path) -> None:
    """A package that was allowed to be larger than usual would be called damaged, though no file has changed."""
    deep = {"/".join(["d"] * (Bounds().depth + 1)) + "/file": b""}
    with store.making() as place:
        write(place / "tree", deep)
        wide = msgspec.structs.replace(manifest(), bounds=Bounds(depth=Bounds().depth + 2))
        seal = store.adopt(place, wide)
    assert SealStore(tmp_path / "seals").verify(seal) == []
    with store.making() as place, pytest.raises(SealError) as caught:
        write(place / "tree", deep)
        store.adopt(place, manifest())
    assert caught.value.code == "too_large"


def _content(seal: Seal) -> None:
    changed(seal.tree / "node_modules/other/index.js", b"'evil'!")


def _added(seal: Seal) -> None:
    os.chmod(seal.tree / "node_modules", 0o755)
    (seal.tree / "node_modules/evil.js").write_bytes(b"")


def _removed(seal: Seal) -> None:
    os.chmod(seal.tree / "node_modules/other", 0o755)
    (seal.tree / "node_modules/other/index.js").unlink()


@pytest.mark.parametrize(
    ("change", "path", "what"),
    [
        (_content, "node_modules/other/index.js", "changed"),
        (_added, "node_modules/evil.js", "added"),
        (_removed, "node_modules/other/index.js", "removed"),
    ],
)
def test_a_seal_that_was_changed_is_not_started(
    store: SealStore, change: Callable[[Seal], None], path: str, what: str
) -> None:
    """Other code would run than was approved, and nobody would say which file it is in, or since when."""
    seal = sealed(store)
    change(seal)
    with pytest.raises(SealError) as caught:
        store.check(seal)
    assert caught.value.code == "changed"
    assert f"{path} of server 1.0.0 ({seal.digest[:12]}) was {what} at 20" in caught.value.message
    assert seal.digest[:12] in caught.value.remedy
    assert [(each.path, each.what) for each in store.verify(seal)] == [(path, what)]


def test_a_seal_that_was_copied_or_touched_is_read_once_and_then_known(
    store: SealStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restored backup would be refused for its times, or read whole at each start."""
    seal = sealed(store)
    for path in FILES:
        os.utime(seal.tree / path, (0, 0))
    store.check(seal)
    monkeypatch.setattr(module, "read_tree", None)  # every file would be read
    store.check(seal)
    (seal.folder / "stamps").write_bytes(b"\x93")
    with pytest.raises(TypeError):
        store.check(seal)


def test_a_damaged_seal_is_replaced_by_an_installation_of_the_same(store: SealStore) -> None:
    """A user would have to find and remove files by hand."""
    seal = sealed(store)
    _content(seal)
    assert sealed(store) == seal
    store.check(seal)


def _cut(seal: Seal) -> None:
    path = seal.folder / "manifest"
    path.write_bytes(path.read_bytes()[:-9])


def _huge(seal: Seal) -> None:
    os.truncate(seal.folder / "manifest", 1024**3)


def _format(seal: Seal) -> None:
    other = msgspec.structs.replace(seal.manifest, format=99)
    (seal.folder / "manifest").write_bytes(msgspec.json.encode(other))


def _gone(seal: Seal) -> None:
    (seal.folder / "manifest").unlink()


def _pipe(seal: Seal) -> None:
    _gone(seal)
    os.mkfifo(seal.folder / "manifest")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_cut, "ends too early"),
        (_huge, "larger than"),
        (_format, "format 99"),
        (_gone, "no such file"),
        (_pipe, "not a regular file"),
    ],
)
def test_a_damaged_manifest_is_told_and_replaced(store: SealStore, spoil: Callable[[Seal], None], says: str) -> None:
    """A start would hang or end in a traceback, and one bad seal would hide all others."""
    other, seal = sealed(store, {"other": b""}), sealed(store)
    spoil(seal)
    with pytest.raises(SealError, match=says) as caught:
        store.open(seal.digest)
    assert caught.value.code == "changed"
    assert (store.seals(), len(store.digests())) == ([other], 2)
    assert sealed(store) == seal
    assert store.open(seal.digest) == seal


def _no_list(seal: Seal) -> None:
    (seal.folder / "entries").write_bytes(b"[")


def _source_in_list(seal: Seal) -> None:
    _in_list(seal, "node_modules/other/index.js")
    hashed = hashlib.sha256((seal.folder / "entries").read_bytes()).hexdigest()
    fitting = msgspec.structs.replace(seal.manifest, entries=hashed)
    (seal.folder / "manifest").write_bytes(msgspec.json.encode(fitting))


def _compiled_in_list(seal: Seal) -> None:
    _in_list(seal, "compiled.pyc")


def _in_list(seal: Seal, path: str) -> None:
    """Give a file another hash in the list of files."""
    entries = msgspec.json.decode((seal.folder / "entries").read_bytes(), type=list[Entry])
    spoiled = [msgspec.structs.replace(each, hash="00") if each.path == path else each for each in entries]
    (seal.folder / "entries").write_bytes(msgspec.json.encode(spoiled))


@pytest.mark.parametrize("spoil", [_no_list, _source_in_list, _compiled_in_list])
def test_another_list_of_files_is_no_proof(store: SealStore, spoil: Callable[[Seal], None]) -> None:
    """Whoever changes a file could change its hash in the list as well."""
    seal = sealed(store, {**FILES, "compiled.pyc": b"0"})
    spoil(seal)
    seal = store.open(seal.digest) or seal
    with pytest.raises(SealError, match="list of files") as caught:
        store.verify(seal)
    assert caught.value.code == "changed"


def test_a_tree_that_cannot_be_read_counts_as_changed(store: SealStore) -> None:
    """A start would end in a traceback."""
    seal = sealed(store)
    os.chmod(seal.folder / "tree", 0o755)
    os.mkfifo(seal.tree / "pipe")
    with pytest.raises(SealError, match="pipe is a pipe") as caught:
        store.check(seal)
    assert caught.value.code == "changed"


def test_a_seal_is_removed_unless_it_is_in_use(store: SealStore, tmp_path: Path) -> None:
    """A server that runs would lose the files that it has not loaded yet."""
    seal = sealed(store)
    with store.held(seal), store.held(seal):
        with pytest.raises(SealError) as caught:
            store.remove(seal.digest)
        assert caught.value.code == "in_use"
        assert store.collect(()) == []
    store.remove(seal.digest)
    assert (store.open(seal.digest), store.seals(), left(tmp_path)) == (None, [], [])
    for use in (lambda: store.remove(seal.digest), lambda: store.check(seal), store.held(seal).__enter__):
        with pytest.raises(SealError) as caught:
            use()
        assert caught.value.code == "not_found"


def test_what_no_row_uses_is_collected(store: SealStore, tmp_path: Path) -> None:
    """Every old version would stay on the disk for good, or one that a row needs would go."""
    one, other = sealed(store), sealed(store, {"other": b""})
    (tmp_path / "seals/.making/dead").mkdir()
    assert store.collect({one.digest}) == [other]
    assert (store.seals(), left(tmp_path)) == ([one], [])


@pytest.mark.parametrize("digest", ["", "..", ".making", "a" * 64, "../" + "a" * 61])
def test_a_name_that_is_no_digest_names_no_seal(store: SealStore, digest: str) -> None:
    """A path in a ledger or on a command line could have any folder removed."""
    assert (store.open(digest), store.seals(), store.collect(())) == (None, [], [])
    with pytest.raises(SealError, match="no seal"):
        store.remove(digest)
    sealed(store)
    assert store.open(digest) is None
    with pytest.raises(SealError, match="no seal"):
        store.remove(digest)


def test_names_are_given_and_taken_by_one_process_at_a_time(
    store: SealStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A seal could be replaced while another process makes, removes or looks for it."""
    seal = sealed(store)
    monkeypatch.setattr(module, "LOCK_WAIT_S", 0.0)
    with store.making() as place, holding_directory(tmp_path / "seals", 0.0):
        write(place / "tree", FILES)
        for use in (
            lambda: store.adopt(place, manifest()),
            lambda: store.remove(seal.digest),
            lambda: store.collect(()),
        ):
            with pytest.raises(SealError) as caught:
                use()
            assert caught.value.code == "in_use"
        with pytest.raises(SealError), store.making():
            pytest.fail("it was made while another process held the folder")
    assert store.seals() == [seal]


def test_a_folder_that_others_can_use_is_not_written_to(store: SealStore, tmp_path: Path) -> None:
    """Another user could put code into what is started."""
    (tmp_path / "seals/.making").mkdir(parents=True)
    os.chmod(tmp_path / "seals/.making", 0o777)
    with pytest.raises(SealError) as caught, store.making():
        pytest.fail("the folder was used")
    assert caught.value.code == "no_store"


def test_times_far_off_change_no_decision(store: SealStore, tmp_path: Path) -> None:
    """A clock that was wrong for a day would have seals removed, or installed again."""
    seal = sealed(store)
    for path in (seal.folder, seal.folder / "manifest", tmp_path / "seals", tmp_path / "seals/.making"):
        os.utime(path, (4_000_000_000, 4_000_000_000))
    store.check(seal)
    with store.making() as place:
        os.utime(place, (0, 0))
        with SealStore(tmp_path / "seals").making():
            assert place.is_dir()


def test_a_difference_can_be_told_to_programs() -> None:
    """A program would have to read sentences."""
    found = msgspec.json.encode(Difference("a", "changed", 1.0))
    assert found == b'{"path":"a","what":"changed","since":1.0}'
