"""The public barrel of the interop bridge: external servers in, one server out.

Every name lives elsewhere and is loaded on first use.
"""

# ruff: noqa: PLC0414 - the redundant alias is how a typed package re-exports (PEP 484)

from typing import TYPE_CHECKING, Final

from quarterdeck.common.lazy import lazy_barrel

if TYPE_CHECKING:
    from quarterdeck.common.identity import CLIENT_NAME as CLIENT_NAME
    from quarterdeck.common.identity import CLIENT_VERSION as CLIENT_VERSION
    from quarterdeck.fleet.endpoint import ServerEndpointImpl as ServerEndpointImpl
    from quarterdeck.fleet.endpoint import create_server_endpoint as create_server_endpoint
    from quarterdeck.fleet.fleet import ServerFleetImpl as ServerFleetImpl
    from quarterdeck.fleet.fleet import start_server_fleet as start_server_fleet
    from quarterdeck.host.session.provider import ProviderHost as ProviderHost
    from quarterdeck.host.session.provider import ProviderHostInfo as ProviderHostInfo
    from quarterdeck.host.session.provider import RunningProviderHost as RunningProviderHost
    from quarterdeck.host.session.provider import create_provider_host as create_provider_host
    from quarterdeck.tools.bridge import MountedProtocolBridge as MountedProtocolBridge
    from quarterdeck.tools.bridge import mount_protocol_bridge as mount_protocol_bridge
    from quarterdeck_protocol.configs import BridgeConfig as BridgeConfig
    from quarterdeck_protocol.configs import ServerConfig as ServerConfig
    from quarterdeck_protocol.configs import SseServerConfig as SseServerConfig
    from quarterdeck_protocol.configs import StdioServerConfig as StdioServerConfig
    from quarterdeck_protocol.configs import StreamableHttpServerConfig as StreamableHttpServerConfig
    from quarterdeck_protocol.configs import TransportKind as TransportKind
    from quarterdeck_protocol.contract import EndpointStatus as EndpointStatus
    from quarterdeck_protocol.contract import FleetStatus as FleetStatus
    from quarterdeck_protocol.contract import MountedBridge as MountedBridge
    from quarterdeck_protocol.contract import RemoteCallResult as RemoteCallResult
    from quarterdeck_protocol.contract import RemoteTool as RemoteTool
    from quarterdeck_protocol.contract import ServerEndpoint as ServerEndpoint
    from quarterdeck_protocol.contract import ServerFleet as ServerFleet
    from quarterdeck_protocol.faults import Delivery as Delivery
    from quarterdeck_protocol.faults import Dossier as Dossier
    from quarterdeck_protocol.faults import FaultKind as FaultKind
    from quarterdeck_protocol.faults import ProtocolFault as ProtocolFault
    from quarterdeck_protocol.faults import is_protocol_fault as is_protocol_fault
    from quarterdeck_protocol.faults import protocol_fault as protocol_fault
    from quarterdeck_protocol.names import QUALIFIER as QUALIFIER
    from quarterdeck_protocol.names import RemoteToolRef as RemoteToolRef
    from quarterdeck_protocol.names import qualify_tool_name as qualify_tool_name
    from quarterdeck_protocol.phases import EndpointPhase as EndpointPhase
    from quarterdeck_protocol.phases import is_terminal_phase as is_terminal_phase
    from quarterdeck_protocol.phases import is_usable_phase as is_usable_phase
    from quarterdeck_protocol.schema.canonical import normalize_schema as normalize_schema
    from quarterdeck_protocol.schema.portable import portable_schema as portable_schema

_HOMES: Final = {
    "BridgeConfig": "quarterdeck_protocol.configs",
    "CLIENT_NAME": "quarterdeck.common.identity",
    "CLIENT_VERSION": "quarterdeck.common.identity",
    "Delivery": "quarterdeck_protocol.faults",
    "Dossier": "quarterdeck_protocol.faults",
    "EndpointPhase": "quarterdeck_protocol.phases",
    "EndpointStatus": "quarterdeck_protocol.contract",
    "FaultKind": "quarterdeck_protocol.faults",
    "FleetStatus": "quarterdeck_protocol.contract",
    "MountedBridge": "quarterdeck_protocol.contract",
    "MountedProtocolBridge": "quarterdeck.tools.bridge",
    "ProtocolFault": "quarterdeck_protocol.faults",
    "ProviderHost": "quarterdeck.host.session.provider",
    "ProviderHostInfo": "quarterdeck.host.session.provider",
    "QUALIFIER": "quarterdeck_protocol.names",
    "RemoteCallResult": "quarterdeck_protocol.contract",
    "RemoteTool": "quarterdeck_protocol.contract",
    "RemoteToolRef": "quarterdeck_protocol.names",
    "RunningProviderHost": "quarterdeck.host.session.provider",
    "ServerConfig": "quarterdeck_protocol.configs",
    "ServerEndpoint": "quarterdeck_protocol.contract",
    "ServerEndpointImpl": "quarterdeck.fleet.endpoint",
    "ServerFleet": "quarterdeck_protocol.contract",
    "ServerFleetImpl": "quarterdeck.fleet.fleet",
    "SseServerConfig": "quarterdeck_protocol.configs",
    "StdioServerConfig": "quarterdeck_protocol.configs",
    "StreamableHttpServerConfig": "quarterdeck_protocol.configs",
    "TransportKind": "quarterdeck_protocol.configs",
    "create_provider_host": "quarterdeck.host.session.provider",
    "create_server_endpoint": "quarterdeck.fleet.endpoint",
    "is_protocol_fault": "quarterdeck_protocol.faults",
    "is_terminal_phase": "quarterdeck_protocol.phases",
    "is_usable_phase": "quarterdeck_protocol.phases",
    "mount_protocol_bridge": "quarterdeck.tools.bridge",
    "normalize_schema": "quarterdeck_protocol.schema.canonical",
    "portable_schema": "quarterdeck_protocol.schema.portable",
    "protocol_fault": "quarterdeck_protocol.faults",
    "qualify_tool_name": "quarterdeck_protocol.names",
    "start_server_fleet": "quarterdeck.fleet.fleet",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_barrel(__name__, _HOMES)
