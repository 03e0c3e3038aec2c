"""What was looked at is known, and a later change of any of it is seen."""

import ast
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import quarterdeck_sandbox
from quarterdeck_sandbox import observed_files as observed
from quarterdeck_sandbox.observed_files import Observations, observing

LONG_AGO_S = 10.0


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = time.time_ns
    monkeypatch.setattr(observed.time, "time_ns", lambda: clock() + int(LONG_AGO_S * 1e9))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A file, a link to it, a folder with another, a link to the folder."""
    root = tmp_path.resolve()
    (root / "folder").mkdir()
    (root / "folder" / "inner").write_text("inner")
    (root / "file").write_text("text")
    (root / "link").symlink_to("file")
    (root / "way").symlink_to(root / "folder")
    (root / "loop").symlink_to("loop")
    return root


QUESTIONS: dict[str, Callable[[str], object]] = {
    "exists": observed.exists,
    "lexists": observed.lexists,
    "isdir": observed.isdir,
    "isfile": observed.isfile,
    "islink": observed.islink,
}

PATHS = ("file", "link", "folder", "way", "way/inner", "loop", "loop/x", "gone", "gone/x", "file/x", "folder/../link")


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_is_that_of_the_system(tree: Path, question: str) -> None:
    """A view would be laid out for a tree that is not there."""
    for asked in (f"{tree}/{path}" for path in PATHS):
        wanted = getattr(os.path, question)(asked)
        assert QUESTIONS[question](asked) == wanted, asked
        with observing():
            assert QUESTIONS[question](asked) == wanted, asked
            assert QUESTIONS[question](asked) == wanted, asked


def test_a_real_path_is_that_of_the_system(tree: Path) -> None:
    """Something else would be shown than what is meant."""
    for asked in (f"{tree}/{path}" for path in PATHS if "loop" not in path):
        with observing():
            assert observed.realpath(asked) == os.path.realpath(asked)


def test_what_cannot_be_looked_at_is_the_systems_error(tree: Path) -> None:
    """A row that names it would be started."""
    for ask in (observed.stat, observed.lstat, observed.listdir):
        for _ in range(2):
            with observing(), pytest.raises(FileNotFoundError):
                ask(f"{tree}/gone")
    with observing(), pytest.raises(OSError, match="symbolic links"):
        observed.stat(f"{tree}/loop")
    with observing(), pytest.raises(OSError, match="not a regular file"):
        observed.read(f"{tree}/folder", 10)


CHANGES: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
    "a secret appears": (lambda tree: observed.lexists(f"{tree}/gone"), lambda tree: (tree / "gone").touch()),
    "a secret appears below what was not there": (
        lambda tree: observed.lexists(f"{tree}/gone/x/secret"),
        lambda tree: (tree / "gone" / "x" / "secret").mkdir(parents=True),
    ),
    "a file goes": (lambda tree: observed.exists(f"{tree}/file"), lambda tree: (tree / "file").unlink()),
    "a folder becomes a link": (
        lambda tree: observed.isdir(f"{tree}/folder/inner"),
        lambda tree: ((tree / "folder").rename(tree / "moved"), (tree / "folder").symlink_to("moved")),
    ),
    "a link leads elsewhere": (
        lambda tree: observed.realpath(f"{tree}/link"),
        lambda tree: ((tree / "link").unlink(), (tree / "link").symlink_to("folder/inner")),
    ),
    "a link on the way leads elsewhere": (
        lambda tree: observed.realpath(f"{tree}/way/inner"),
        lambda tree: ((tree / "way").unlink(), (tree / "way").symlink_to("/usr")),
    ),
    "a file is written": (lambda tree: observed.read(f"{tree}/link", 10), lambda tree: (tree / "file").write_text("t")),
    "a file is replaced by its like": (
        lambda tree: observed.read(f"{tree}/file", 10),
        lambda tree: ((tree / "new").write_text("text"), (tree / "new").rename(tree / "file")),
    ),
    "a file appears among others": (
        lambda tree: observed.listdir(f"{tree}/folder"),
        lambda tree: (tree / "folder" / "another").touch(),
    ),
    "a mode": (lambda tree: observed.stat(f"{tree}/file"), lambda tree: (tree / "file").chmod(0o600)),
    "another name of a file": (
        lambda tree: observed.lstat(f"{tree}/file"),
        lambda tree: (tree / "second").hardlink_to(tree / "file"),
    ),
    "it may be executed": (
        lambda tree: observed.access(f"{tree}/link", os.X_OK),
        lambda tree: (tree / "file").chmod(0o755),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_what_was_seen_is_seen(tree: Path, name: str) -> None:
    """A server would be confined by what was so for another one before it."""
    look, change = CHANGES[name]
    with observing() as seen:
        look(tree)
    sent = msgspec.json.decode(msgspec.json.encode(seen), type=Observations)
    assert sent.changed() == ""
    change(tree)
    assert sent.changed().startswith(str(tree))


def test_a_question_is_asked_once(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty answers to one question would be forty looks, and could differ within one decision."""
    with observing():
        assert observed.exists(f"{tree}/file")
        (tree / "file").unlink()
        assert observed.isfile(f"{tree}/file")
        with observing():
            assert observed.isfile(f"{tree}/file")
    assert not observed.exists(f"{tree}/file")


def test_what_was_just_changed_is_not_settled(tree: Path) -> None:
    """A second change within the same tick of the clock would not show."""
    with observing() as seen:
        observed.read(f"{tree}/file", 10)
    assert not seen.is_settled


NAMES = st.sampled_from(("a", "b", "a/x", "b/x", "c", "c/x"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(("file", "folder", "link", "gone")), NAMES), max_size=6), NAMES)
def test_no_change_of_an_answer_goes_unseen(
    tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, str]], asked: str
) -> None:
    """Whatever happens to a tree: where nothing is said to have changed, every answer is the same."""
    root = tmp_path_factory.mktemp("tree").resolve()

    def answers() -> list[object]:
        path = f"{root}/{asked}"
        return [observed.realpath(path), *(ask(path) for ask in QUESTIONS.values())]

    act(root, "folder", "a")
    act(root, "link", "c")
    for kind, name in acts:
        with observing() as seen:
            before = answers()
        act(root, kind, name)
        assert seen.changed() or answers() == before


def act(root: Path, kind: str, name: str) -> None:
    """Put something else in a place, if it can be."""
    path = root / name
    try:
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir():
            path.rename(root / f"was-{time.monotonic_ns()}")
        if kind == "file":
            path.touch()
        elif kind == "folder":
            path.mkdir()
        elif kind == "link":
            path.symlink_to("a" if name != "a" else "b")
    except OSError:
        pass


LOOKS = frozenset({"access", "listdir", "lstat", "readlink", "scandir", "stat", "walk", "fwalk"})
LOOKS_BY_PATH = frozenset({"exists", "isdir", "isfile", "islink", "lexists", "realpath", "samefile"})
OF_PATHLIB = frozenset({"read_bytes", "read_text", "is_dir", "is_file", "iterdir", "glob", "rglob", "resolve"})


@pytest.mark.parametrize("folder", ["program", "view", "run/confine.py"])
def test_every_look_that_decides_what_is_shown_is_observed(folder: str) -> None:
    """A decision would be used again although what it rests on has changed."""
    place = Path(quarterdeck_sandbox.__path__[0], folder)
    for module in [place] if place.is_file() else sorted(place.glob("*.py")):
        if module.name == "own_code.py":
            continue  # of this process: found once, whatever happens
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Call):
                assert not looks(node.func), f"{module.name}:{node.lineno} looks by itself"


def looks(function: ast.expr) -> bool:
    """Whether a call of it would be a look that nobody keeps."""
    if isinstance(function, ast.Name):
        return function.id in {"open", "open_regular"}
    if not isinstance(function, ast.Attribute):
        return False
    of = ast.unparse(function.value)
    if of == "observed":
        return False
    return function.attr in (LOOKS if of == "os" else LOOKS_BY_PATH if of == "os.path" else OF_PATHLIB)
