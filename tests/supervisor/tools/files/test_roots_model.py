"""Where each spelling of a path leads, by a model without descriptors: a tree in memory, in which a link is a text."""

import errno
import os
import stat
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quarterdeck.tools.context import OutsideRootsError
from quarterdeck.tools.files.roots import Roots

NAMES = (
    *("", ".", "..", "...", "dir", "sub", "leaf", "file", "ünï", "nothing", "inside", "outside", "secret"),
    *("out", "outfile", "back", "up", "abs", "loop", "dangling", "far"),
)


def plant(tree: dict[str, Any], at: Path) -> None:
    for name, node in tree.items():
        if isinstance(node, dict):
            (at / name).mkdir()
            plant(node, at / name)
        elif node is None:
            (at / name).write_text("")
        else:
            (at / name).symlink_to(node)


@pytest.fixture(scope="module")
def forest(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    base = Path(os.path.realpath(tmp_path_factory.mktemp("forest")))
    tree: dict[str, Any] = {
        "inside": {
            "dir": {"sub": {"leaf": None}, "up": "..", "abs": f"{base}/inside/dir"},
            "ünï": {"far": "../../outside/nothing"},
            "file": None,
            "out": "../outside",
            "outfile": "../outside/secret",
            "loop": "loop",
            "dangling": "dir/nothing",
        },
        "outside": {"secret": None, "back": "../inside/dir", "nothing": {}},
    }
    plant(tree, base)
    for name in reversed(base.parts[1:]):
        tree = {name: tree}
    return base, tree


def resolve(top: dict[str, Any], path: str) -> tuple[str, str, int]:
    """`at`, `missing` or `stuck`, the place, and for the last the number of the error."""
    pending, here, links = path.split("/"), list[str](), 0
    while pending:
        node: Any = top
        for name in here:
            node = node[name]
        name = pending.pop(0)
        place = "/" + "/".join([*here, name] if name else here)
        if not isinstance(node, dict):
            return "stuck", place, errno.ENOTDIR
        if name in {"", "."}:
            continue
        if name == "..":
            here = here[:-1]
        elif name not in node:
            if any(part not in {"", "."} for part in pending):
                return "stuck", place, errno.ENOENT
            return "missing", place, 0
        elif isinstance(node[name], str):
            links += 1
            if links > 40:
                return "stuck", place, errno.ELOOP
            if node[name].startswith("/"):
                here = []
            pending = node[name].split("/") + pending
        else:
            here.append(name)
    return "at", "/" + "/".join(here), 0


@given(
    names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=9).filter(any),
    is_absolute=st.booleans(),
    cwd=st.sampled_from(["inside", "inside/dir"]),
)
@example(names=["dir", "up", "out", "back", "sub", "leaf"], is_absolute=False, cwd="inside")
@example(names=["file", "..", "dir"], is_absolute=False, cwd="inside")
@example(names=["dangling", ""], is_absolute=False, cwd="inside")
@example(names=["..", "leaf"], is_absolute=False, cwd="inside")
@example(names=["out", "dir", "leaf"], is_absolute=False, cwd="inside")
def test_every_spelling_leads_where_a_naive_model_says(
    forest: tuple[Path, dict[str, Any]], names: list[str], is_absolute: bool, cwd: str
) -> None:
    """Some spelling of a path would lead elsewhere than it seems, or out; or a refusal would tell what is outside."""
    base, tree = forest
    path = "/".join([f"{base}/inside", *names] if is_absolute else names)
    if path.startswith("/") and not is_absolute:
        path = path.lstrip("/")
    verdict, place, number = resolve(tree, os.path.join(base, cwd, path))
    inside = f"{base}/inside"
    is_inside = place == inside or place.startswith(inside + "/")
    look = partial(Roots(inside).look, path, f"{base}/{cwd}")
    if verdict == "stuck" and (is_inside or inside.startswith(place.rstrip("/") + "/")):
        with pytest.raises(OSError) as caught, look():
            pass
        assert (caught.value.errno, type(caught.value) is OutsideRootsError) == (number, False)
    elif not is_inside:
        with pytest.raises(OutsideRootsError), look():
            pass
    else:
        with look() as spot:
            assert (spot.place, spot.thing is not None) == (place, verdict == "at")
            if spot.status is not None:
                assert os.path.samestat(spot.status, os.stat(place))
                assert not stat.S_ISLNK(spot.status.st_mode)
