"""How many files may be open, here and in children."""

import resource
from collections.abc import Iterator

import pytest

from quarterdeck_sandbox.run import open_files
from quarterdeck_sandbox.run.open_files import childs_limit, raise_limit


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(open_files, "_before", None)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_is_raised_to_the_hard_one_and_children_keep_the_old() -> None:
    """A flood of connections would exhaust 1,024 descriptors; or every server would be started with a million."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (700, hard))
    assert childs_limit() == 0
    assert raise_limit() == hard
    assert childs_limit() == 700
    assert raise_limit() == hard
    assert childs_limit() == 700


def test_what_is_raised_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children would be given a limit that nobody had."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (4096, 4096))
    assert raise_limit() == 4096
    assert childs_limit() == 0


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
        assert raise_limit() == 10_240
    assert childs_limit() == 256
