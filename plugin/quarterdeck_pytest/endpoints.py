"""What is asked of an endpoint, alike in the run's supervisor and for an object in the test's own process."""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from quarterdeck.fleet.workers.requests import ended
from quarterdeck.interop import ServerEndpointImpl
from quarterdeck_protocol.contract import RemoteCallResult
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.offers import Listing, RawRequest
from quarterdeck_protocol.tools import Client, Deliver, PendingCall, RawCall

from .messages import Greeting
from .relay import Relay


def call_of(tool: str, arguments: bytes, timeout_s: float | None, client: Client, relay: Relay) -> RawCall:
    """A test's call of a tool, with the way back to it."""
    return RawCall(
        tool,
        arguments,
        timeout_s=timeout_s,
        on_progress=relay.on_progress,
        client=client,
        answerer=relay,
        log_level=relay.log_level,
    )


def request_of(method: str, params: bytes, timeout_s: float | None, client: Client, relay: Relay) -> RawRequest:
    """Any other request of a test, with the way back to it."""
    return RawRequest(
        method,
        params,
        timeout_s=timeout_s,
        on_progress=relay.on_progress,
        client=client,
        answerer=relay,
        log_level=relay.log_level,
    )


def era_of(endpoint: ServerEndpointImpl) -> str:
    """The revision that is spoken with its server; empty while it is not greeted."""
    return endpoint.card.era if endpoint.card is not None else ""


async def awaited(begin: Callable[[Deliver], PendingCall]) -> RemoteCallResult:
    """The result of the request that `begin` starts; raises `ProtocolFault`."""
    result = await ended(begin)
    assert result is not None
    return result


async def want(endpoint: ServerEndpointImpl, client: Client, what: str, value: str) -> None:
    """Have a client hear of a resource, or of it no more, or of log lines from a level on, or of nothing.

    Raises:
        ProtocolFault: the server does not tell of that resource.
    """
    match what:
        case "subscribe":
            request = RawRequest("resources/subscribe", msgspec.json.encode({"uri": value}), client=client)
            await awaited(partial(endpoint.forward, request))
        case "unsubscribe":
            endpoint.unsubscribe(client, value)
        case "log_level":
            endpoint.set_level(client, value)
        case _:
            endpoint.leave(client)


def greeting_of(endpoint: ServerEndpointImpl) -> Greeting:
    """What its server said of itself.

    Raises:
        ProtocolFault: it was not greeted.
    """
    card = endpoint.card
    if card is None:
        why = f"{endpoint.config.id} is {endpoint.phase}, and has not been greeted"
        raise ProtocolFault.not_sent(FaultKind.NOT_CONNECTED, why, "not_connected")
    return Greeting(card.era, card.info, card.capabilities, card.instructions)


def list_of(endpoint: ServerEndpointImpl, listing: Listing) -> Sequence[object]:
    """A list as it came last, the same tuple until it changes."""
    return endpoint.tools() if listing is Listing.TOOLS else endpoint.offers(listing)


def definitions(endpoint: ServerEndpointImpl, listing: Listing) -> list[bytes]:
    """What of a list came last, each as the server's own JSON."""
    if listing is Listing.TOOLS:
        return [tool.descriptor.definition or b"null" for tool in endpoint.tools()]
    return [each.definition for each in endpoint.offers(listing)]
