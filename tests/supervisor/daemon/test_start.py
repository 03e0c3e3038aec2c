"""A daemon that cannot be started: whoever wants it is told what to do, and nothing is left of it."""

import errno
from collections.abc import Iterator

import pytest
from support.config.places import short_folder, use_places

from quarterdeck.config.places.paths import UnusableDirectoryError
from quarterdeck.daemon import place, start
from quarterdeck.daemon.place import daemon_dir, start_lock
from quarterdeck.daemon.start import start_daemon


@pytest.fixture(autouse=True)
def places(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Directories of our own."""
    with short_folder() as folder:
        use_places(monkeypatch, folder)
        yield


@pytest.mark.parametrize("directory", ["/proc/none", "/dev/null/none"])
def test_a_state_directory_that_cannot_be_made_is_named_with_what_moves_it(
    monkeypatch: pytest.MonkeyPatch, directory: str
) -> None:
    """A door would end with an error of ours, or leave a socket behind that nobody listens on."""
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", directory)
    with pytest.raises(UnusableDirectoryError, match=f"{directory} .*QUARTERDECK_STATE_DIR"):
        start_daemon(daemon_dir(), {})
    assert not daemon_dir().exists()


def test_a_runtime_directory_without_room_is_named_with_what_moves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person would be told that no space is left, and not where."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(place, "make_key", fail)
    with pytest.raises(UnusableDirectoryError, match=r"make room there.*QUARTERDECK_RUNTIME_DIR"):
        start_daemon(daemon_dir(), {})
    assert not daemon_dir().exists()


def test_a_daemon_that_cannot_be_run_leaves_nothing_to_connect_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next door would wait before a socket that nobody listens on."""
    monkeypatch.setattr(start.sys, "executable", "/none/python")
    with pytest.raises(FileNotFoundError):
        start_daemon(daemon_dir(), {})
    assert not daemon_dir().exists()


def test_a_lock_passes_on_what_went_wrong_under_it() -> None:
    """A missing file would be taken for the lock's own, and end in an error of ours."""
    with pytest.raises(FileNotFoundError, match="mine"), start_lock(daemon_dir()):
        raise FileNotFoundError("mine")
