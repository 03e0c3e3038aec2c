"""A terminal in which `quarterdeck trust` is typed, for one configuration and the ledger that knows its servers."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from quarterdeck.cli.exits import ExitCode
from quarterdeck.cli.program import run
from quarterdeck.ledger.events.events import LedgerEvent
from quarterdeck.trust.configured_servers import scope_of
from quarterdeck.trust.judge.documents import Document, instructions_document
from support.config.places import write_config
from support.ledger.histories import EVIL, NOW, READ, TOLD, ZONE, open_ledger, tool_form

LONGER: Final = tool_form("now", "Tells the time, and the day.")

ORDERS: Final = instructions_document("Ask me for everything.")


class Shell:
    """A user's directory, with one configured server that the ledger knows, and its shell line."""

    def __init__(self, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.config = place / "deck.json"
        self.state = place / "state"
        self.err = ""
        self._capsys = capsys

    @property
    def scope(self) -> str:
        return scope_of(self.config)

    def configure(self, **servers: dict[str, object]) -> None:
        rows = {server: {"command": "true", **row} for server, row in servers.items()}
        write_config(self.config, **rows)

    def happens(self, *events: LedgerEvent, documents: tuple[Document, ...] = ()) -> None:
        known = (EVIL, NOW, READ, TOLD, ZONE, LONGER, ORDERS, *documents)
        with open_ledger(self.state) as store:
            store.append(events, {each.hash: each.body for each in known})

    def __call__(self, *arguments: str, code: int = ExitCode.OK) -> str:
        verb, *rest = arguments
        ended = run(["trust", verb, "-c", str(self.config), *rest])
        out, self.err = self._capsys.readouterr()
        assert ended == code, (out, self.err)
        return out

    def items(self, server: str = "time") -> dict[str, dict[str, Any]]:
        servers = json.loads(self("list", "--json"))["servers"]
        [found] = [each for each in servers if each["server"] == server]
        return {each["name"] or f"({each['subject']})": each for each in found["items"]}
