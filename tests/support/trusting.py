"""A approvals that trusts everything, for tests of what stands behind it."""

# ruff: noqa: D102 - what each method means is said in `Approvals`

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from quarterdeck.trust.configured_servers import row_of
from quarterdeck.trust.judge.offers import Offer
from quarterdeck.trust.judge.server_rows import ServerRow
from quarterdeck_protocol.configs import ServerConfig

from .fakes import FakeFleet


class TrustingApprovals:
    """Offers what the fleet's endpoints have; see `Approvals`."""

    def __init__(self, fleet: FakeFleet, configs: tuple[ServerConfig, ...]) -> None:
        self.rows: tuple[ServerRow, ...] = tuple(row_of(config, None) for config in configs)
        self._fleet = fleet

    @property
    def held(self) -> Mapping[str, Offer]:
        return {}

    @property
    def held_counts(self) -> Mapping[str, int]:
        return {}

    @property
    def held_launches(self) -> tuple[str, ...]:
        return ()

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        callback()
        return self._fleet.watch(callback)

    def offer(self, server: str) -> Offer:
        endpoint = self._fleet.endpoint(server)
        tools = endpoint.offered() if endpoint is not None else ()
        return Offer(tools, frozenset(tool.ref.name for tool in tools))

    def is_provisional(self, _: str) -> bool:
        return False

    def admits(self, server: str, tool: str, _: Any) -> bool:
        return tool in self.offer(server).names

    def refusal(self, *_: str) -> None:
        return None

    def launch_fault(self, _: str) -> None:
        return None

    def is_judged(self, _: str) -> bool:
        return True


def home_of(_: str) -> Path:
    """Nobody's home."""
    return Path("/nonexistent")
