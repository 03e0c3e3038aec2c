"""Answer a test's requests of an endpoint, in the run's supervisor or in the test's own process."""

from collections.abc import Sequence
from functools import partial

import msgspec

from quarterdeck.fleet.workers.requests import ended
from quarterdeck.interop import ServerEndpointImpl
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.offers import Listing, RawRequest
from quarterdeck_protocol.tools import Client, RawCall

from .messages import Ask, Greet, Greeting, List, Notify, OfEndpoint, Reply, Want, reply_of
from .relay import Relay


async def ask(endpoint: ServerEndpointImpl, request: Ask, client: Client, relay: Relay) -> Reply:
    """Call a tool or make another request, whose progress and questions go to `relay`. Raise `ProtocolFault`."""
    timeout_s, on_progress, log_level = request.timeout_s, relay.on_progress, relay.log_level
    if request.tool:
        call = RawCall(
            request.tool,
            request.body,
            timeout_s=timeout_s,
            on_progress=on_progress,
            client=client,
            answerer=relay,
            log_level=log_level,
        )
        result = await endpoint.result_of(call)
    else:
        other = RawRequest(
            request.method,
            request.body,
            timeout_s=timeout_s,
            on_progress=on_progress,
            client=client,
            answerer=relay,
            log_level=log_level,
        )
        found = await ended(partial(endpoint.forward, other))
        assert found is not None
        result = found
    return Reply(request.id, result.body, result.wire.era, result.is_error)


async def answer(endpoint: ServerEndpointImpl, request: OfEndpoint, client: Client) -> Reply:
    """Answer a request that needs the endpoint alone. Raise `ProtocolFault` before the handshake, when the list failed,
    or if the server does not notify of that resource.
    """
    match request:
        case List(listing=name):
            await endpoint.list_tools()
            return reply_of(request, _definitions(endpoint, Listing(name)))
        case Greet():
            return reply_of(request, _greeting(endpoint))
        case Notify(method=method, params=params):
            endpoint.tell(method, params)
        case Want(what="subscribe", value=uri):
            subscribe = RawRequest("resources/subscribe", msgspec.json.encode({"uri": uri}), client=client)
            await ended(partial(endpoint.forward, subscribe))
        case Want(what="unsubscribe", value=uri):
            endpoint.unsubscribe(client, uri)
        case Want(what="log_level", value=level):
            endpoint.set_level(client, level)
        case Want():
            endpoint.leave(client)
    return Reply(request.id)


def era_of(endpoint: ServerEndpointImpl) -> str:
    """Return the revision that the server speaks; empty before the handshake."""
    return endpoint.card.era if endpoint.card is not None else ""


def list_of(endpoint: ServerEndpointImpl, listing: Listing) -> Sequence[object]:
    """Return the latest list, the same tuple until it changes."""
    return endpoint.tools() if listing is Listing.TOOLS else endpoint.offers(listing)


def _definitions(endpoint: ServerEndpointImpl, listing: Listing) -> list[bytes]:
    if listing is Listing.TOOLS:
        return [tool.descriptor.definition or b"null" for tool in endpoint.tools()]
    return [each.definition for each in endpoint.offers(listing)]


def _greeting(endpoint: ServerEndpointImpl) -> Greeting:
    card = endpoint.card
    if card is None:
        why = f"{endpoint.config.id} is {endpoint.phase}, and has not been greeted"
        raise ProtocolFault.not_sent(FaultKind.NOT_CONNECTED, why, "not_connected")
    return Greeting(card.era, card.info, card.capabilities, card.instructions)
