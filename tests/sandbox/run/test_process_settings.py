"""Settings of our own processes."""

import os
import platform
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.processes.running import python_output
from support.sandbox.confinements import TierHome, run

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


scored = pytest.mark.skipif(not Path("/proc/self/oom_score_adj").exists(), reason="there are no such scores")


@pytest.fixture
def score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "oom_score_adj"
    path.write_text("0\n")
    monkeypatch.setattr(process_settings, "_SCORE", path)
    monkeypatch.setattr(process_settings, "_raised", 0)
    return path


@scored
def test_each_is_raised_above_its_parent_by_its_place(score: Path) -> None:
    """A server that eats the memory would bring down whoever owns it."""
    assert (
        process_settings.oom_score_of_confined() == process_settings.OomScore.CONFINED
    )  # a native command's: the supervisor confines it
    process_settings.raise_oom_score(process_settings.OomScore.ZYGOTE)
    assert int(score.read_text()) == process_settings.OomScore.ZYGOTE
    process_settings.raise_oom_score(process_settings.OomScore.WORKER)
    process_settings.raise_oom_score(process_settings.OomScore.ZYGOTE)
    assert int(score.read_text()) == process_settings.OomScore.WORKER
    assert process_settings.oom_score_of_confined() == process_settings.OomScore.CONFINED


@scored
@pytest.mark.parametrize(("given", "worker", "confined"), [(-500, -200, 100), (200, 500, 800), (900, 1000, 1000)])
def test_what_we_were_given_is_where_it_begins(score: Path, given: int, worker: int, confined: int) -> None:
    """In a container or a unit with a score of its own the order would be lost."""
    score.write_text(str(given))
    assert process_settings.oom_score_of_confined() == confined
    process_settings.raise_oom_score(process_settings.OomScore.WORKER)
    assert int(score.read_text()) == worker


@scored
@pytest.mark.parametrize("text", [None, "", "x"])
def test_where_there_are_no_scores_nothing_is_raised(score: Path, text: str | None) -> None:
    """Nothing would start on another system."""
    score.unlink() if text is None else score.write_text(text)
    process_settings.raise_oom_score(process_settings.OomScore.WORKER)
    assert process_settings.oom_score_of_confined() is None


@pytest.mark.process
@scored
async def test_a_confined_program_has_its_score_whoever_it_becomes(tier_home: TierHome) -> None:
    """The kernel would choose among us by size alone."""
    # Whatever another test has made of our own.
    ours = (process_settings._present() or 0) - process_settings._raised
    status, said, _ = await run(tier_home.shell("cat /proc/self/oom_score_adj"))
    assert (status, int(said)) == (0, min(1000, ours + process_settings.OomScore.CONFINED))


@pytest.mark.process
@scored
def test_a_score_that_may_not_be_written_is_no_failure() -> None:
    """A container that forbids it would start no worker."""
    code = "import sys; from pathlib import Path; from quarterdeck_sandbox.run import process_settings as oom; "
    code += "oom._SCORE = Path(sys.argv[1]); oom.raise_oom_score(300); print(oom._raised)"
    assert python_output(code, os.devnull + "/x") == "0\n"


GROW_AND_SHRINK = """
import sys
from quarterdeck_sandbox.run.process_settings import give_back_large_blocks
if sys.argv[1] == "fixed":
    assert give_back_large_blocks()
def resident_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 >> 20
first = b"x" * (24 << 20)  # a large block that is freed once: from here on others of its size lie in the heap
del first
before = resident_mib()
large, small = [], []
for _ in range(20):
    large.append(b"x" * (8 << 20))
    small.append(b"x" * 5000)  # behind each of them something stays
del large
print(resident_mib() - before)
"""
"""What is left of 160 MiB."""


def left_mib(how: str) -> int:
    return int(python_output(GROW_AND_SHRINK, how))


@pytest.mark.process
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator is what is set")
def test_what_large_results_took_is_given_back_although_small_objects_follow_them() -> None:
    """A serve would stay as large as it was at its busiest moment."""
    assert left_mib("fixed") < 16
    assert left_mib("as it is") > 100  # else there is nothing to mend any more


def test_elsewhere_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A serve would not start on macOS, or on musl."""
    monkeypatch.setattr(process_settings, "LIBC", SimpleNamespace())
    assert not process_settings.give_back_large_blocks()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not process_settings.give_back_large_blocks()
