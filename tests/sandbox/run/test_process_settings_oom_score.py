"""Who is killed first when memory runs out."""

import os
from pathlib import Path

import pytest
from support.processes.running import python_output
from support.sandbox.confinements import TierHome, run

from quarterdeck_sandbox.run import process_settings

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not Path("/proc/self/oom_score_adj").exists(), reason="there are no such scores"),
]


@pytest.fixture
def score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A score of this test's own, 0."""
    path = tmp_path / "oom_score_adj"
    path.write_text("0\n")
    monkeypatch.setattr(process_settings, "_SCORE", path)
    monkeypatch.setattr(process_settings, "_raised", 0)
    return path


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


@pytest.mark.parametrize(("given", "worker", "confined"), [(-500, -200, 100), (200, 500, 800), (900, 1000, 1000)])
def test_what_we_were_given_is_where_it_begins(score: Path, given: int, worker: int, confined: int) -> None:
    """In a container or a unit with a score of its own the order would be lost."""
    score.write_text(str(given))
    assert process_settings.oom_score_of_confined() == confined
    process_settings.raise_oom_score(process_settings.OomScore.WORKER)
    assert int(score.read_text()) == worker


@pytest.mark.parametrize("text", [None, "", "x"])
def test_where_there_are_no_scores_nothing_is_raised(score: Path, text: str | None) -> None:
    """Nothing would start on another system."""
    score.unlink() if text is None else score.write_text(text)
    process_settings.raise_oom_score(process_settings.OomScore.WORKER)
    assert process_settings.oom_score_of_confined() is None


async def test_a_confined_program_has_its_score_whoever_it_becomes(tier_home: TierHome) -> None:
    """The kernel would choose among us by size alone."""
    ours = process_settings._present() or 0
    status, said, _ = await run(tier_home.shell("cat /proc/self/oom_score_adj"))
    assert (status, int(said)) == (0, min(1000, ours + process_settings.OomScore.CONFINED))


def test_a_score_that_may_not_be_written_is_no_failure() -> None:
    """A container that forbids it would start no worker."""
    code = "import sys; from pathlib import Path; from quarterdeck_sandbox.run import process_settings as oom; "
    code += "oom._SCORE = Path(sys.argv[1]); oom.raise_oom_score(300); print(oom._raised)"
    assert python_output(code, os.devnull + "/x") == "0\n"
