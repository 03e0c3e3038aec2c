"""A state directory of the tests' own: the user's is neither read nor written, which is seen at the end where they have
none.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs
import pytest

from quarterdeck.config.places.paths import APP_NAME


def usual_state_dir() -> Path:
    """Where the user's state would be, whatever `QUARTERDECK_STATE_DIR` says."""
    return Path(platformdirs.user_state_path(APP_NAME))


@contextmanager
def own_state(usual: Path) -> Iterator[None]:
    """Within the block, the usual place for state is a folder that is removed in the end.

    Args:
        usual: the user's state directory.

    Raises:
        AssertionError: it did not exist before the block, and something in the block made it.
    """
    had_state = usual.exists()
    made = tempfile.TemporaryDirectory(prefix="qd-state-", ignore_cleanup_errors=True)
    with made as name, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", name)
        patch.delenv("QUARTERDECK_STATE_DIR", raising=False)
        yield
    # One that was there may be written by a `serve` of the user's meanwhile.
    assert had_state or not usual.exists(), f"a test wrote into the user's state directory: {usual} was made"
