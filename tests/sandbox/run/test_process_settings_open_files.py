"""How many files may be open, here and in children."""

import resource
from collections.abc import Iterator

import pytest

from quarterdeck_sandbox.run import process_settings
from quarterdeck_sandbox.run.process_settings import open_files_of_children, raise_open_files_limit


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(process_settings, "_open_files_before", None)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_is_raised_to_the_hard_one_and_children_keep_the_old() -> None:
    """A flood of connections would exhaust 1,024 descriptors; or every server would be started with a million."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (700, hard))
    assert open_files_of_children() == 0
    assert raise_open_files_limit() == hard
    assert open_files_of_children() == 700
    assert raise_open_files_limit() == hard
    assert open_files_of_children() == 700


def test_what_is_raised_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children would be given a limit that nobody had."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (4096, 4096))
    assert raise_open_files_limit() == 4096
    assert open_files_of_children() == 0


def test_a_limit_that_the_system_does_not_take_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """MacOS has no hard limit and refuses it all the same; `serve` would not start there."""
    now = [256]

    def take(_: int, limits: tuple[int, int]) -> None:
        if limits[0] == resource.RLIM_INFINITY:
            raise ValueError("current limit exceeds maximum limit")
        now[0] = limits[0]

    monkeypatch.setattr(resource, "getrlimit", lambda _: (now[0], resource.RLIM_INFINITY))
    with monkeypatch.context() as patched:
        patched.setattr(resource, "setrlimit", take)
        assert raise_open_files_limit() == 10_240
    assert open_files_of_children() == 256
