"""Fill a ledger of values from live servers, and withdraw their tools. A server that faults contributes nothing, and is
no fault of the attachment: the fleet's status tells why.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

from quarterdeck.config.places.paths import UnsafePathError
from quarterdeck.fleet.fleet import ServerFleetImpl
from quarterdeck.ledger.store.database import audit_time
from quarterdeck.ledger.values import BridgeLedger, EnrollRequest, bridge_box_to_capabilities, server_of_qualified
from quarterdeck.route.mount import mount_protocol_bridge
from quarterdeck.tools.card_types import DeckFault, DeckFaultKind
from quarterdeck_protocol.configs import BridgeConfig
from quarterdeck_protocol.contract import FleetStatus, ServerFleet


@dataclass(frozen=True, slots=True)
class AttachResult:
    """The outcome of attaching: the ledger with every found tool enrolled, the live fleet, which the caller tears down
    (by `detach_bridge` or itself), every server's status at that moment, the number of enrolled tools, and, as `fault`,
    why no server could even be tried (kind `bridge`), or None.
    """

    ledger: BridgeLedger
    fleet: ServerFleet
    status: FleetStatus
    enrolled: int
    fault: DeckFault | None = None


async def attach_bridge_capabilities(ledger: BridgeLedger, config: BridgeConfig) -> AttachResult:
    """Start the configured servers and enrol their tools, once every connect has settled; without servers, return the
    same ledger and an empty fleet. Cancelling tears down what was started.
    """
    try:
        mounted = await mount_protocol_bridge(config)
    except (UnsafePathError, OSError) as error:
        fault = DeckFault(DeckFaultKind.BRIDGE, f"no server can be attached: {error}", error)
        return AttachResult(ledger, ServerFleetImpl(), MappingProxyType({}), 0, fault)
    capabilities = bridge_box_to_capabilities(mounted.box)
    requests = [EnrollRequest(each, server_of_qualified(each.name)) for each in capabilities]
    enrolled = ledger.enroll_all(requests, audit_time())
    return AttachResult(enrolled, mounted.fleet, mounted.fleet.status(), len(requests))


async def detach_bridge(ledger: BridgeLedger, fleet: ServerFleet, servers: Sequence[str] | None = None) -> BridgeLedger:
    """Withdraw what `servers` have live, every server's of the fleet without them, and tear the fleet down."""
    at = audit_time()
    for server in fleet.status() if servers is None else servers:
        ledger = ledger.withdraw_server(server, at)
    await fleet.tear_down()
    return ledger
