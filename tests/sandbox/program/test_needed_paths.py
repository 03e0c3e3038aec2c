"""What a policy must show for a named path to work."""

from pathlib import Path

import pytest

from quarterdeck_sandbox.program.needed_paths import NamedPath, RequiredPath, named_in, need_of, project_of

BESIDE = "a journal or a temporary copy is made beside the file"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A user's home with a few projects and files."""
    home = tmp_path / "home" / "u"
    for name in ("py/src/pkg", "js/build", "mono/node_modules", "mono/packages/one/dist", "loose", "data", "repo/.git"):
        (home / name).mkdir(parents=True)
    for name in (
        *("py/pyproject.toml", "py/src/pkg/server.py", "js/package.json", "js/build/index.js", "mono/package.json"),
        *("mono/packages/one/package.json", "mono/packages/one/dist/main.mjs", "loose/server.py", "data/x.db"),
        *("data/notes.json", "repo/run.sh", "alone.py", "alone.db", "settings.json"),
    ):
        (home / name).touch()
    return home


@pytest.mark.parametrize(
    ("path", "label", "key", "where", "why"),
    [
        ("py/src/pkg/server.py", "", "read", "py", "its project, by pyproject.toml"),
        ("js/build/index.js", "", "read", "js", "its project, by package.json"),
        ("mono/packages/one/dist/main.mjs", "", "read", "mono", "its project, by package.json"),
        ("repo/run.sh", "", "read", "repo", "its project, by .git"),
        ("loose/server.py", "", "read", "loose", "its folder: what it imports lies beside it"),
        ("data/x.db", "", "write", "data", BESIDE),
        ("data/notes.json", "MEMORY_FILE_PATH", "write", "data", BESIDE),
        ("data/notes.json", "--db-path", "write", "data", BESIDE),
        ("data/new.txt", "", "write", "data", "the file is to be made in it"),
        ("data/notes.json", "--config", "read", "data/notes.json", ""),
        ("data", "", "read", "data", ""),
        ("alone.py", "", "read", "alone.py", ""),
        ("settings.json", "", "read", "settings.json", ""),
    ],
)
def test_each_kind_of_path_needs_what_makes_it_work(
    home: Path, path: str, label: str, key: str, where: str, why: str
) -> None:
    """A user would name the file, and meet the next error; or give away more than it takes."""
    assert need_of(NamedPath(str(home / path), label), str(home)) == RequiredPath(key, str(home / where), why)


@pytest.mark.parametrize("path", ["alone.db", "new.db", "missing/new.db", "."])
def test_a_home_is_never_the_answer(home: Path, path: str) -> None:
    """A database in the home would have the whole home given away."""
    named = NamedPath(str(home / path) if path != "." else str(home))
    assert need_of(named, str(home)) is None


@pytest.mark.parametrize("path", ["/x.db", "/tmp/x.db", "/home/x.db", "/etc/x.db", "/tmp"])
def test_a_folder_of_many_is_never_the_answer(home: Path, path: str) -> None:
    """Everybody's temporary files would be given to one server."""
    assert need_of(NamedPath(path), str(home)) is None


def test_a_project_ends_below_the_home(home: Path) -> None:
    """A home under version control would be given away whole."""
    (home / ".git").mkdir()
    assert project_of(str(home / "loose/server.py"), str(home)) == str(home / "loose")
    assert project_of(str(home / "alone.py"), str(home)) is None


def test_arguments_options_and_variables_are_looked_at() -> None:
    """A path in a variable would never be offered."""
    argv = ("node", "/p/index.js", "--db-path", "/d/x.db", "--out=/o", "-y", "@scope/pkg", "rel/x")
    argv += ("--dsn", "sqlite:///d/y.db", "--url=file:///d/z.md", "https://x/d")
    env = {
        "DB_URL": "sqlite+aiosqlite:////d/x.db",
        "MEMORY_FILE_PATH": "/m/memory.json",
        "HOME_FILE": "~/f",
        "PATH": "/usr/bin:/bin",
        "URL": "https://x/y",
    }
    found = [(named.label, named.path) for named in named_in(argv, env, "/cwd", "/home/u")]
    for each in (
        *(("", "/p/index.js"), ("--db-path", "/d/x.db"), ("--out", "/o"), ("", "/cwd/rel/x")),
        *(("MEMORY_FILE_PATH", "/m/memory.json"), ("HOME_FILE", "/home/u/f"), ("DB_URL", "/d/x.db")),
        *(("--dsn", "/d/y.db"), ("--url", "/d/z.md")),
    ):
        assert each in found
    assert not {"PATH", "URL"} & {label for label, _ in found}
