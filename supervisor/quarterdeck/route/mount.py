"""Start configured servers and offer their tools, for programs that embed us."""

from dataclasses import dataclass

import anyio

from quarterdeck_protocol.configs import BridgeConfig
from quarterdeck_protocol.contract import ServerEndpoint, ServerFleet, is_usable_phase
from quarterdeck_protocol.faults import ProtocolFault

from .router import Router


@dataclass(frozen=True, slots=True)
class MountedProtocolBridge:
    """A fleet and the box over it; its owner tears the fleet down."""

    box: Router
    fleet: ServerFleet


async def mount_protocol_bridge(config: BridgeConfig) -> MountedProtocolBridge:
    """Start the configured servers and box their tools.

    Returns when every connect has settled and every ready server has listed its tools or failed to; a server that
    fails either offers nothing.  When cancelled, what was started is torn down.
    """
    from quarterdeck.fleet.fleet import start_server_fleet  # sockets and the runtime: not needed to box a given fleet

    fleet = await start_server_fleet(config)
    try:
        async with anyio.create_task_group() as listings:
            for endpoint in fleet.endpoints():
                if is_usable_phase(endpoint.phase):
                    listings.start_soon(_list_tools, endpoint)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await fleet.tear_down()
        raise
    return MountedProtocolBridge(Router(fleet), fleet)


async def _list_tools(endpoint: ServerEndpoint) -> None:
    try:
        await endpoint.list_tools()
    except ProtocolFault:
        pass  # it stays ready and offers nothing until a list succeeds; the others are not held up
