"""A home with nothing in it, a registry in a file, and trials that end as a test says, without a process."""

import json
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.cli.find import add, trial, upgrade
from quarterdeck.cli.find.trial import Trial
from quarterdeck.daemon.control.protocol import FaultView
from quarterdeck.ledger.events.events import Subject, hash_of
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck.seals.store import Seal
from quarterdeck.trust.judge.documents import Document
from quarterdeck_protocol.configs import ServerConfig


def tool(name: str, description: str = "Does something.") -> Document:
    body = json.dumps({"name": name, "description": description, "inputSchema": {"type": "object"}}).encode()
    return Document(ItemKey(Subject.TOOL, name), hash_of(body), body)


class Trials:
    """What the next trials show, and of which servers there were any."""

    def __init__(self) -> None:
        self.result = Trial((tool("save"),))
        self.tried: list[ServerConfig] = []
        self.seal: Seal | None = None
        self.present: dict[str, Trial] = {}
        """The results of seals that servers run from so far, by digest."""

    def fail(self, code: str, message: str) -> None:
        """Have the next ones fail."""
        self.result = Trial(fault=FaultView("connect", code, message, None, "not_sent"))

    def __call__(
        self, config: ServerConfig, secrets: frozenset[str], *, seal: Seal | None, allow_unsandboxed: bool
    ) -> Trial:
        """In place of `try_server`."""
        if seal is not None and seal.digest in self.present:
            return self.present[seal.digest]
        assert seal is self.seal, "it is tried from the seal that it will run from"
        self.tried.append(config)
        return self.result

    def seal_of(self, _config: ServerConfig, **_options: bool) -> Seal | None:
        """In place of the real one: what the package was sealed to."""
        return self.seal


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> Trials:
    made = Trials()
    monkeypatch.setattr(trial, "try_server", made)
    for module in (add, upgrade):
        monkeypatch.setattr(module, "seal_of", made.seal_of)
    return made


class Home:
    """A user's own file, and a registry in another."""

    def __init__(self, root: Path) -> None:
        self.config = root / ".config" / "quarterdeck" / "mcp.json"
        self.registry = root / "registry.json"

    def write(self, **rows: object) -> None:
        """Have these servers."""
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text(json.dumps({"registry": str(self.registry), "mcpServers": rows}, indent=2))

    def publish(self, name: str, **members: Any) -> None:
        """Have the registry list one server alone."""
        server = {"name": name, "description": "Notes", "version": "1.0.0", **members}
        self.registry.write_text(json.dumps({"servers": [{"server": server}]}))

    @property
    def rows(self) -> Any:
        """The rows of the file; none without one."""
        return json.loads(self.config.read_text())["mcpServers"] if self.config.exists() else {}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """The home of a user who has npx and uvx, and never used us."""
    root = tmp_path.resolve()
    monkeypatch.setenv("HOME", str(root))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "QUARTERDECK_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    for name in ("state", "run", "work", "bin"):
        (root / name).mkdir(mode=0o700)
    monkeypatch.setenv("QUARTERDECK_STATE_DIR", str(root / "state"))
    monkeypatch.setenv("QUARTERDECK_DATA_DIR", str(root / "data"))
    monkeypatch.setenv("QUARTERDECK_RUNTIME_DIR", str(root / "run"))
    for name in ("npx", "uvx"):
        path = root / "bin" / name
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(root / "bin"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    monkeypatch.chdir(root / "work")
    return Home(root)
