"""The public barrel of the interop bridge: external servers in, one server out.

Every name lives elsewhere and is loaded on first use.
"""

from typing import TYPE_CHECKING

from quarterdeck_protocol.lazy import lazy_barrel

if TYPE_CHECKING:
    from quarterdeck_protocol.identity import CLIENT_NAME as CLIENT_NAME, CLIENT_VERSION as CLIENT_VERSION
    from quarterdeck.fleet.endpoint import (
        ServerEndpointImpl as ServerEndpointImpl,
        create_server_endpoint as create_server_endpoint,
    )
    from quarterdeck.fleet.fleet import ServerFleetImpl as ServerFleetImpl, start_server_fleet as start_server_fleet
    from quarterdeck.host.provider import (
        ProviderHost as ProviderHost,
        ProviderHostInfo as ProviderHostInfo,
        RunningProviderHost as RunningProviderHost,
        create_provider_host as create_provider_host,
    )
    from quarterdeck.route.mount import (
        MountedProtocolBridge as MountedProtocolBridge,
        mount_protocol_bridge as mount_protocol_bridge,
    )
    from quarterdeck_protocol.configs import (
        BridgeConfig as BridgeConfig,
        ServerConfig as ServerConfig,
        SseServerConfig as SseServerConfig,
        StdioServerConfig as StdioServerConfig,
        StreamableHttpServerConfig as StreamableHttpServerConfig,
        TransportKind as TransportKind,
    )
    from quarterdeck_protocol.contract import (
        EndpointPhase as EndpointPhase,
        EndpointStatus as EndpointStatus,
        FleetStatus as FleetStatus,
        MountedBridge as MountedBridge,
        RemoteCallResult as RemoteCallResult,
        RemoteTool as RemoteTool,
        ServerEndpoint as ServerEndpoint,
        ServerFleet as ServerFleet,
        is_terminal_phase as is_terminal_phase,
        is_usable_phase as is_usable_phase,
    )
    from quarterdeck_protocol.faults import (
        Delivery as Delivery,
        Dossier as Dossier,
        FaultKind as FaultKind,
        ProtocolFault as ProtocolFault,
        is_protocol_fault as is_protocol_fault,
        protocol_fault as protocol_fault,
    )
    from quarterdeck_protocol.names import (
        QUALIFIER as QUALIFIER,
        RemoteToolRef as RemoteToolRef,
        qualify_tool_name as qualify_tool_name,
    )
    from quarterdeck_protocol.schema.canonical import normalize_schema as normalize_schema
    from quarterdeck_protocol.schema.portable import portable_schema as portable_schema

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_barrel(__name__)
