"""What a test process asks the run's supervisor for."""

from pathlib import Path

import pytest

from quarterdeck_pytest.activation import RunAddress
from quarterdeck_pytest.client.pool import Asked, Pool
from quarterdeck_pytest.options import Mark, Options


def test_a_configuration_that_is_a_value_is_written_once_and_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of xdist would empty the file that another one's server is being read from."""
    pool = Pool(RunAddress(str(tmp_path), "token"), Options(), "main")
    asked = Asked(Mark(), "", {"mcpServers": {"echo": {"command": "echo"}}}, tmp_path, "test_it", {}, [].append)
    writing, told = Path.write_text, []

    def watched(path: Path, text: str, **options: str) -> int:
        told.append(path)
        return writing(path, text, **options)

    monkeypatch.setattr(Path, "write_text", watched)
    file = pool.file_of(asked)
    assert file.read_text() == '{"mcpServers": {"echo": {"command": "echo"}}}'
    assert pool.file_of(asked) == file
    assert len(told) == 1
    assert told[0] != file
    assert list(file.parent.iterdir()) == [file]
