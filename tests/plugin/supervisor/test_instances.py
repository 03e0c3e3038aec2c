"""What is told of the servers that a run has."""

from pathlib import Path

from support.config.places import row, write_config

from quarterdeck_protocol.faults import Dossier, FaultKind, ProtocolFault
from quarterdeck_pytest.messages import Wish
from quarterdeck_pytest.supervisor.instances import Instance

SECRET = "sk-4f9a8b7c6d5e4f3a2b1c0d9e"


def test_a_fault_crosses_without_secrets(tmp_path: Path) -> None:
    """The log of a CI run, which many can read, would show a server's key."""
    file = write_config(tmp_path / "mcp.json", echo=row("echo", env={"API_KEY": SECRET}))
    instance = Instance("key", Wish(file=str(file)), "test_it", shared=False)
    dossier = Dossier(stderr_tail=f"key: {SECRET}\n", hints=(f"it may need {SECRET}",))
    fault = ProtocolFault(FaultKind.TOOL_ERROR, f"{SECRET} is no key of ours", code="reply_error", dossier=dossier)
    record = instance.record(fault)
    assert (record.code, record.message) == ("reply_error", "[redacted] is no key of ours")
    assert record.dossier == Dossier(stderr_tail="key: [redacted]\n", hints=("it may need [redacted]",))
