"""A command line run in this process, and what it prints."""

import json
from typing import Any

import pytest

from quarterdeck.cli.program import run


class Said:
    """Runs a command line, which is to end with `code`; what has been printed since this was last asked."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, code: int, *words: object) -> Any:
        found = run([str(word) for word in words])
        printed = self._capsys.readouterr()
        assert found == code, printed
        return printed

    def all(self, code: int, *words: object) -> str:
        return "".join(self(code, *words))

    def json(self, code: int, *words: object) -> Any:
        return json.loads(self(code, *words).out)
