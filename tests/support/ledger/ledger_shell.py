"""A terminal in which `quarterdeck ledger` is typed."""

import json
from typing import Any

import pytest

from quarterdeck.cli.program import run


class LedgerShell:
    """The commands, and what they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.err = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        ended = run(["ledger", *arguments])
        out, self.err = self._capsys.readouterr()
        assert ended == code, (ended, out, self.err)
        return out

    def lines(self, *arguments: str) -> list[Any]:
        return [json.loads(line) for line in self(*arguments, "--json").splitlines()]

    def document(self, *arguments: str, code: int = 0) -> Any:
        [line] = self(*arguments, "--json", code=code).splitlines()
        return json.loads(line)
