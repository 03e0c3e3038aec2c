"""A `Product` over a fleet in memory: what control and command line ask, without processes."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

from quarterdeck.config.places.runtime_directory import RuntimeDirectory
from quarterdeck.config.settings import Settings
from quarterdeck.fleet.fleet import ServerFleetImpl
from quarterdeck.fleet.worker_session import ConfinedServer
from quarterdeck.running_product import Product
from quarterdeck.trust.approvals import Approvals
from quarterdeck_protocol.contract import EndpointPhase, EndpointStatus, RemoteCallResult
from quarterdeck_protocol.faults import ProtocolFault
from support.fleet.memory_fleet import FakeEndpoint, FakeFleet
from support.trust.approvals import TrustingApprovals


class ProductEndpoint(FakeEndpoint):
    """A fake endpoint that can be called with bytes; `calls` are the ones that were begun."""

    calls: int = 0
    restarts: int = 0
    confined: ConfinedServer | None = None
    pid: int | None = None
    isolated: bool = True

    async def call(self, tool: str, arguments: bytes) -> RemoteCallResult:
        self.calls += 1
        return await self.answer(tool, arguments.decode())

    def status(self) -> EndpointStatus:
        sandbox = self.confined.status if self.confined is not None else None
        more = {"restarts": self.restarts, "pid": self.pid, "isolated": self.isolated, "sandbox": sandbox}
        more["list_fault"] = self.list_fault
        return replace(super().status(), **more)


class ProductFleet(FakeFleet):
    """A fake fleet whose servers restart at once."""

    by_id: dict[str, ProductEndpoint]  # type: ignore[assignment]

    def last_fault(self, server: str) -> ProtocolFault | None:
        return self.by_id[server].fault if server in self.by_id else None

    def has_settled(self, server: str) -> bool:
        return self.by_id[server].phase not in (EndpointPhase.IDLE, EndpointPhase.CONNECTING)

    async def restart(self, server: str) -> None:
        self.by_id[server].restarts += 1
        self.by_id[server].phase = EndpointPhase.CONNECTING
        asyncio.get_running_loop().call_soon(self._connected, server)

    def _connected(self, server: str) -> None:
        endpoint = self.by_id[server]
        endpoint.phase = EndpointPhase.FAULTED if endpoint.fault is not None else EndpointPhase.READY
        self.tell()


@contextmanager
def product_of(root: Path, *endpoints: ProductEndpoint, settings: Settings | None = None) -> Iterator[Product]:
    """A product of these endpoints, with a runtime directory below `root`."""
    settings = settings or Settings()
    settings = replace(settings, servers=tuple(endpoint.config for endpoint in endpoints))
    with RuntimeDirectory.create(settings.digest, root) as directory:
        fleet = ProductFleet(*endpoints)
        approvals = TrustingApprovals(fleet, settings.servers)
        yield Product(settings, directory, cast("ServerFleetImpl", fleet), cast("Approvals", approvals))
