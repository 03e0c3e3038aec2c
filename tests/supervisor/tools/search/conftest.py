"""A session that searches, confined to one directory."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.tools.searches import session_in

from quarterdeck.tools.context import ToolContext


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Where the session works."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
async def ctx(workspace: Path, tmp_path: Path) -> AsyncIterator[ToolContext]:
    async with session_in(workspace, tmp_path / "state") as opened:
        yield opened
