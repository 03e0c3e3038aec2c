"""A view's mounts: which one decides what is at a path."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck_sandbox.policy.mounts import Mount, MountKind, View, in_order, is_within

PATHS = st.lists(st.sampled_from(["a", "ab", "b", "a-b"]), max_size=4).map(lambda names: "/" + "/".join(names))


@given(st.lists(PATHS, max_size=8, unique=True), PATHS)
def test_the_innermost_mount_decides(targets: list[str], path: str) -> None:
    """A path would be taken for hidden though it is shown, or for read-only though it can be written."""
    mounts = in_order(Mount(MountKind.READ, target, target) for target in targets)
    last = next((mount for mount in reversed(mounts) if is_within(path, mount.target)), None)
    assert View(mounts).covering(path) == last


@pytest.mark.parametrize(("path", "is_shown"), [("/t", True), ("/t/x", False), ("/h", False), ("/r/x", True)])
def test_an_empty_place_shows_nothing_below_it(path: str, is_shown: bool) -> None:
    """A file of everybody's /tmp would be taken for one that the process sees."""
    kinds = {"/t": MountKind.SCRATCH, "/h": MountKind.HIDE, "/r": MountKind.READ}
    assert View(tuple(Mount(kind, target) for target, kind in kinds.items())).shows(path) is is_shown
