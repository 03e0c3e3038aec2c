"""What the tests of a session's files share."""

import os
from pathlib import Path

import pytest

from quarterdeck.tools.files.local_files import LocalFs
from quarterdeck.tools.files.roots import Roots


@pytest.fixture
def work(tmp_path: Path) -> Path:
    base = Path(os.path.realpath(tmp_path))
    (base / "outside").mkdir()
    (base / "outside" / "f").write_text("secret")
    (base / "work").mkdir()
    return base / "work"


@pytest.fixture
def files(work: Path) -> LocalFs:
    return LocalFs(Roots(work), str(work))
