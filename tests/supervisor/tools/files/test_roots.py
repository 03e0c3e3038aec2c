"""Which places a session may touch."""

import errno
import os
import shutil
from pathlib import Path

import pytest
from support.processes.line_child import LineChild, PeerClosedError
from support.sandbox.machine_facts import LINUX_ONLY, NO_MOUNT_NAMESPACE, not_installed

from quarterdeck.common.path_walk import open_file
from quarterdeck.tools.context import OutsideRootsError
from quarterdeck.tools.files.roots import MAX_SHOWN_CHARS, Roots, absolute

ON_LINUX = LINUX_ONLY


@pytest.fixture
def base(tmp_path: Path) -> Path:
    base = Path(os.path.realpath(tmp_path))
    for name in ("work", "work/sub", "data", "session", "outside"):
        (base / name).mkdir()
        (base / name / "f").write_text(name)
    return base


def read(roots: Roots, path: str | Path, cwd: str | Path = "/") -> str:
    with roots.look(str(path), str(cwd)) as spot, os.fdopen(open_file(spot), "rb") as file:
        return file.read().decode()


def may_change(roots: Roots, path: str | Path, cwd: str | Path = "/") -> bool:
    try:
        with roots.look_to_change(str(path), str(cwd)):
            return True
    except OutsideRootsError:
        return False


def test_what_is_closed_is_in_no_root_but_a_root_within_it_is(base: Path) -> None:
    """In a workspace that holds our own state, a session could read tokens, or not its own outputs."""
    (base / "work/sub/deep").mkdir()
    (base / "work/sub/deep/f").write_text("deep")
    (base / "work/link").symlink_to("sub")
    roots = Roots(base / "work", readable=[base / "work/sub/deep"], closed=[base / "work/link"])
    for path in ("work/sub/f", "work/link/f"):
        with pytest.raises(OutsideRootsError):
            read(roots, base / path)
    assert not may_change(roots, base / "work/sub/new")
    assert read(roots, base / "work/sub/deep/f") == "deep"
    assert read(roots, base / "work/f") == "work"


def test_a_refusal_names_the_path_the_roots_and_the_way(base: Path) -> None:
    """A model would try again at random."""
    roots = Roots(base / "work", [base / "data"], [base / "session"])
    with pytest.raises(OutsideRootsError) as caught:
        read(roots, "../outside/f", base / "work")
    assert str(caught.value) == (
        f"`../outside/f` is outside of what this session may touch: {base}/work (the workspace), {base}/data. "
        "Use a path inside one of these."
    )
    assert (caught.value.errno, caught.value.filename) == (errno.EACCES, "../outside/f")
    with pytest.raises(OutsideRootsError) as caught, roots.look_to_change(str(base / "session" / "f"), "/"):
        pass
    assert str(caught.value) == (
        f"`{base}/session/f` may be read, not changed: this session may change {base}/work (the workspace), "
        f"{base}/data. Use a path inside one of these."
    )


def test_a_refusal_of_a_long_or_odd_path_can_be_shown(base: Path) -> None:
    """The reason would be lost in a path of thousands of characters, or fail to be encoded."""
    with pytest.raises(OutsideRootsError) as caught:
        read(Roots(base / "work"), "../" * 600 + "caf\udce9", base / "work")
    assert len(str(caught.value)) < MAX_SHOWN_CHARS + len(str(base)) + 200
    with pytest.raises(OutsideRootsError) as caught:
        read(Roots(base / "work"), "../caf\udce9", base / "work")
    assert "caf\\udce9" in str(caught.value).encode().decode()


def test_an_inner_root_decides_for_itself(base: Path) -> None:
    """A session could change its own overflow texts, or not work in a directory of a readable one."""
    closed = Roots(base / "work", readable=[base / "work" / "sub"])
    assert may_change(closed, base / "work" / "f")
    assert not may_change(closed, base / "work" / "sub" / "f")
    assert read(closed, base / "work" / "sub" / "f") == "work/sub"
    opened = Roots(base / "work" / "sub", readable=[base / "work"])
    assert may_change(opened, base / "work" / "sub" / "f")
    assert not may_change(opened, base / "work" / "f")


def test_the_same_root_twice_is_the_one_that_allows_more(base: Path) -> None:
    """An allowed directory would become read only because it is also listed as such; or be listed twice."""
    (base / "link").symlink_to("work")
    roots = Roots(base / "work", [base / "link"], [base / "work"])
    assert may_change(roots, base / "work" / "f")
    with pytest.raises(OutsideRootsError) as caught:
        read(roots, base / "outside" / "f")
    assert str(caught.value).count("work") == 2


def test_a_root_may_be_a_link_and_what_it_leads_to_is_settled(base: Path) -> None:
    """A project in a linked directory could not be worked in; or whoever changes the link would move the root."""
    (base / "link").symlink_to("work")
    roots = Roots(base / "link")
    assert read(roots, base / "link" / "f") == read(roots, base / "work" / "f") == "work"
    (base / "link").unlink()
    (base / "link").symlink_to("outside")
    with pytest.raises(OutsideRootsError):
        read(roots, base / "link" / "f")
    assert read(roots, base / "work" / "f") == "work"


def test_a_root_that_vanished_is_missing_not_outside(base: Path) -> None:
    """A model would be sent to the very directory that does not exist."""
    roots = Roots(base / "work")
    shutil.rmtree(base / "work")
    with pytest.raises(FileNotFoundError):
        read(roots, "f", base / "work")
    with pytest.raises(FileNotFoundError), roots.look_to_change("a/b", str(base / "work"), make=_never):
        pass
    with pytest.raises(OutsideRootsError), roots.look_to_change(str(base / "work"), "/"):
        pass  # its parent is no root


def _never(directory: int, name: str) -> None:
    raise AssertionError(name)


def test_a_root_may_come_later(base: Path) -> None:
    """A directory that a session's first command makes could not be used."""
    roots = Roots(base / "work", [base / "later"])
    (base / "later").mkdir()
    (base / "later" / "f").write_text("later")
    assert read(roots, base / "later" / "f") == "later"


@ON_LINUX
def test_the_whole_machine_as_a_root_has_no_processes(base: Path) -> None:
    """`--allow-dir /` would show this process's environment, with the keys of every server."""
    (base / "environ").symlink_to("/proc/self/environ")
    roots = Roots("/")
    assert read(roots, base / "work" / "f") == "work"
    assert may_change(roots, base / "work" / "f")
    for path in ("/proc/self/environ", base / "environ", "/sys/kernel/mm/transparent_hugepage/enabled"):
        with pytest.raises(OutsideRootsError, match=r"/ \(the workspace\) without /proc and /sys"):
            read(roots, path)
    assert read(Roots(base / "work", readable=["/proc/sys/kernel"]), "/proc/sys/kernel/ostype") == "Linux\n"


@ON_LINUX
@pytest.mark.parametrize("link", ["/proc/self/root", "/proc/1/root", "/proc/self/cwd/..", "/dev/fd", "/proc/self/fd"])
def test_links_of_the_kernel_lead_out_like_any_other(base: Path, link: str) -> None:
    """One link would open the machine."""
    (base / "work" / "jump").symlink_to(link)
    with pytest.raises(OutsideRootsError):
        read(Roots(base / "work"), "jump/etc/passwd", base / "work")
    assert not may_change(Roots(base / "work"), "jump/tmp/new", base / "work")


@pytest.mark.process
@ON_LINUX
def test_another_process_s_view_of_a_root_is_not_the_root(base: Path) -> None:
    """What another session's sandbox has mounted at our names could be read through `/proc/<pid>/root`."""
    script = 'mount --bind "$1" "$2" && echo ready && read -r _'
    argv = ["unshare", "-m", "sh", "-c", script, "sh", str(base / "outside"), str(base / "work" / "sub")]
    if missing := not_installed("unshare"):
        pytest.skip(missing)
    with LineChild(argv) as other:
        try:
            other.read_line()
        except PeerClosedError:
            pytest.skip(NO_MOUNT_NAMESPACE)
        (base / "work" / "jump").symlink_to(f"/proc/{other.pid}/root{base}/work/sub/f")
        assert (base / "work" / "jump").read_text() == "outside"
        assert os.readlink(base / "work" / "jump").endswith("/work/sub/f")
        assert read(Roots(base / "work"), "jump", base / "work") == "work/sub"


def test_only_what_may_be_created_is_made_on_the_way(base: Path) -> None:
    """`mkdir -p` through a link would make directories outside, before it is refused."""
    (base / "work" / "out").symlink_to(base / "outside")
    roots = Roots(base / "work", readable=[base / "session"])

    def make(directory: int, name: str) -> None:
        os.mkdir(name, dir_fd=directory)

    for path in (base / "work" / "out" / "a" / "b", base / "session" / "a" / "b", "../x/y"):
        with pytest.raises(OutsideRootsError), roots.look_to_change(str(path), str(base / "work"), make=make):
            pass
    assert sorted(os.listdir(base / "outside")) == sorted(os.listdir(base / "session")) == ["f"]
    assert not (base / "x").exists()
    with roots.look_to_change("a/../b/c", str(base / "work"), make=make) as spot:
        assert spot.place == str(base / "work" / "b" / "c")


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_a_root_without_a_name_is_a_mistake(path: str) -> None:
    """An empty setting would open the directory that the process happens to be in."""
    with pytest.raises(ValueError, match="needs a directory"):
        Roots(path)
    with pytest.raises(ValueError, match="needs a directory"):
        Roots("/work", [path])


def test_a_relative_root_is_taken_from_here(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--workspace .` would hold nothing; `link/..` would be the wrong directory."""
    (base / "link").symlink_to("work/sub")
    monkeypatch.chdir(base)
    assert absolute("work/./sub/") == str(base / "work" / "sub")
    assert absolute("link/..") == str(base / "work")
    assert read(Roots("work"), base / "work" / "f") == "work"


def test_what_is_protected_is_read_and_never_changed(base: Path) -> None:
    """`write` would give the user's configuration a row that nothing confines."""
    (base / "work/link").symlink_to(base / "work/sub/f")
    named = [str(base / "work/f"), str(base / "work/link"), str(base / "work/new/mcp.json"), str(base / "data")]
    roots = Roots(base / "work", [base / "data", base / "data/f"], protected=lambda: named)
    for path in ("work/f", "work/link", "work/sub/f", "data/f", "data/new"):
        assert not may_change(roots, base / path)
    assert read(roots, base / "work/f") == "work"
    assert may_change(roots, base / "work/other")
    named.append(str(base / "work/other"))  # a reloaded configuration refers to it
    assert not may_change(roots, base / "work/other")
    (base / "work/new").mkdir()
    assert not may_change(roots, base / "work/new/mcp.json")
    assert may_change(roots, base / "work/new/other.json")
    with pytest.raises(OutsideRootsError, match=r"reads it as its user's own settings. Ask the user"):
        roots.look_to_change(str(base / "work/f"), "/").__enter__()


def test_a_link_that_is_protected_is_not_changed_itself(base: Path) -> None:
    """It would lead to another configuration from then on."""
    (base / "work/link").symlink_to(base / "outside/f")
    roots = Roots(base / "work", protected=lambda: [str(base / "work/link")])
    with pytest.raises(OutsideRootsError), roots.look_to_change(str(base / "work/link"), "/", follow_last=False):
        pass


def test_a_folder_that_holds_what_is_protected_is_not_removed(base: Path) -> None:
    """A configuration would be removed with its folder, and written anew."""
    roots = Roots(base / "work", protected=lambda: [str(base / "work/sub/f")])
    with roots.look_to_change(str(base / "work/sub"), "/", follow_last=False) as spot, pytest.raises(OSError) as caught:
        roots.require_removable(spot, "sub")
    assert caught.value.errno == errno.EBUSY


@pytest.mark.parametrize("path", [".git/hooks/x", ".git/config", "sub/.git/x", ".vscode/tasks.json", ".envrc"])
def test_hooks_are_changed_only_by_whom_they_were_given(base: Path, path: str) -> None:
    """A hook would run with the user's next commit, outside of any sandbox; or nobody could have one written."""
    (base / "work" / path).parent.mkdir(parents=True, exist_ok=True)
    (base / "work" / path).write_text("x")
    assert not may_change(Roots(base / "work"), base / "work" / path)
    assert may_change(Roots(base / "work"), base / "work/sub/f")
    assert may_change(Roots(base / "work", [(base / "work" / path)]), base / "work" / path)
    if "/" in path:
        assert may_change(Roots(base / "work", [(base / "work" / path).parent]), base / "work" / path)
