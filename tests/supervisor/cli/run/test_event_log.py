"""What a serve logs about its servers."""

import logging
from pathlib import Path
from typing import cast

import pytest
from support.products import ProductEndpoint, ProductFleet, product_of

from quarterdeck.cli.run.event_log import changes_logged
from quarterdeck_protocol.faults import REMEDIES, FaultKind, ProtocolFault
from quarterdeck_protocol.phases import EndpointPhase

LOST = ProtocolFault(FaultKind.TRANSPORT, "it died", code="exited")


def test_each_change_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A log would not show a death, or repeat it at each change of another server."""
    caplog.set_level(logging.INFO)
    server = ProductEndpoint("fs", "read", phase=EndpointPhase.CONNECTING)
    with product_of(tmp_path, server) as product, changes_logged(product):
        fleet = cast("ProductFleet", product.fleet)
        for phase, fault, restarts in (
            (EndpointPhase.READY, None, 0),
            (EndpointPhase.FAULTED, LOST, 0),
            (EndpointPhase.CONNECTING, None, 1),
            (EndpointPhase.READY, None, 1),
        ):
            server.phase, server.fault, server.restarts = phase, fault, restarts
            fleet.tell()
            fleet.tell()
    server.phase = EndpointPhase.CLOSED
    fleet.tell()
    assert [entry.getMessage() for entry in caplog.records] == [
        "fs is ready (pid None, tools: 1)",
        f"fs is faulted: it died (exited): {REMEDIES['exited']}",
        "fs is ready (pid None, tools: 1, restarts: 1)",
    ]
