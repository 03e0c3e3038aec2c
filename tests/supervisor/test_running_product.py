"""The product while it runs: what its hosts share, and how long."""

from pathlib import Path

from support.serves.products import ProductEndpoint, product_of

from quarterdeck.config.load.file import BrokenRow
from quarterdeck.config.settings import Settings
from quarterdeck.host.http.readiness import Obstacle
from quarterdeck_protocol.contract import EndpointPhase
from quarterdeck_protocol.faults import FaultKind, ProtocolFault


def test_what_was_cut_for_a_client_goes_with_its_session(tmp_path: Path) -> None:
    """What a client was answered would stay in memory after it."""
    with product_of(tmp_path) as product:
        host = product.create_host()
        assert host.content.results is product.results
        for client in ("door/1", "door/2"):
            product.results.keep(client, client, b"whole", 0)
        host.content.on_ended("door/1")
        assert product.results.read("door/1", "door/1", 0) is None
        assert product.results.read("door/2", "door/2", 0) == b"whole"
        host.close()


def test_required_servers_alone_keep_a_deck_from_being_ready(tmp_path: Path) -> None:
    """One server that nobody needs would take a whole team's service away; or one that all need would be missed."""
    fault = ProtocolFault.not_sent(FaultKind.SPAWN_FAILED, "npx does not exist", "command_not_found")
    phases = {"ready": EndpointPhase.READY, "starts": EndpointPhase.CONNECTING, "dead": EndpointPhase.FAULTED}
    endpoints = [ProductEndpoint(name, phase=phase) for name, phase in phases.items()]
    for endpoint in endpoints:
        endpoint.config = endpoint.config.model_copy(update={"required": True})
    endpoints[-1].fault = fault
    spare = ProductEndpoint("spare", phase=EndpointPhase.FAULTED, fault=fault)
    broken = (
        BrokenRow("typo", "no command", "config_invalid", is_required=True),
        BrokenRow("other", "no command", "config_invalid"),
    )
    with product_of(tmp_path, *endpoints, spare, settings=Settings(broken=broken)) as product:
        found = {each.name: each.kind for each in product.unready()}
    failed = Obstacle.SERVER_FAILED
    assert found == {"dead": failed, "starts": Obstacle.SERVER_STARTING, "typo": failed}
