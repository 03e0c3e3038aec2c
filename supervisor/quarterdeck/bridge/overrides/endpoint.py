"""One server as its overrides show it: public names and arguments on one side, the server's own on the other.

Every list, call and request passes here, whatever it came by; what is hidden is unknown here.
"""

from typing import Final

import msgspec
from msgspec import Raw

from quarterdeck.bridge.uri_routes import as_glob, completed_uri
from quarterdeck.common.patterns import may_fit, surely_fits
from quarterdeck.common.uri_readings import judged_uri
from quarterdeck.config.overrides import ServerOverrides
from quarterdeck.fleet.workers.requests import arguments_json, is_of_prompt, refuse
from quarterdeck_protocol.configs import ServerConfig
from quarterdeck_protocol.contract import EndpointPhase, EndpointStatus, LiveEndpoint, RemoteCallResult, RemoteTool
from quarterdeck_protocol.faults import FaultKind, ProtocolFault
from quarterdeck_protocol.mcp.tasks import TaskSupport
from quarterdeck_protocol.names import did_you_mean
from quarterdeck_protocol.offers import Listing, Offered, RawRequest
from quarterdeck_protocol.tools import Client, Deliver, PendingCall, RawCall

from .published import PublishedTools, publish_offers, publish_tools
from .schemas import ArgumentError, with_arguments
from .unmet import Names, public_names, unmet_by_overrides

MAX_NAME_CHARS: Final = 200
"""Of a name or URI that a client made up, in a message."""


class OverriddenEndpoint(LiveEndpoint):
    """See the module; over the server's own endpoint, which knows nothing of it."""

    def __init__(self, inner: LiveEndpoint, overrides: ServerOverrides) -> None:
        self.inner: Final = inner
        self.overrides: Final = overrides
        self._tools: tuple[tuple[RemoteTool, ...], PublishedTools] = ((), PublishedTools())
        self._offers: dict[Listing, tuple[tuple[Offered, ...], tuple[Offered, ...]]] = {}
        self._known: dict[str, tuple[RemoteTool, RemoteTool]] = {}

    # What is offered

    def published(self) -> PublishedTools:
        """Its tools as clients see them, with what is not shown; the same value until they change."""
        tools = self.inner.offered()
        if tools is not self._tools[0]:
            self._tools = tools, self._with_known(publish_tools(tools, self.overrides), tools)
        return self._tools[1]

    def _with_known(self, published: PublishedTools, tools: tuple[RemoteTool, ...]) -> PublishedTools:
        """The same, with the very tools of before where the server's are: who compares, compares by identity."""
        own = {self.overrides.public(tool.ref.name): tool for tool in tools}
        known = self._known
        self._known = {
            tool.ref.name: known[tool.ref.name]
            if tool.ref.name in known and known[tool.ref.name][0] is own[tool.ref.name]
            else (own[tool.ref.name], tool)
            for tool in published.tools
        }
        same = tuple(self._known[tool.ref.name][1] for tool in published.tools)
        return PublishedTools(same, published.refused)

    def notes(self) -> list[str]:
        """What of the overrides cannot be carried out, or has no effect, a line each."""
        refused = self.published().refused.items()
        return [
            *(f"{name!r} is not offered: {why}" for name, why in refused),
            *unmet_by_overrides(self._own(), self.overrides),
        ]

    def hidden(self) -> list[str]:
        """What is not shown of what the server offers, by the names that clients would know."""
        hidden = public_names(self.config.id, self._own(), self.overrides, are_hidden=True)
        return [name for names in hidden.values() for name in names]

    def _own(self) -> Names:
        """What the server offers, by its own names."""
        prompts, resources, templates = (
            [each.key for each in self.inner.offers(listing)]
            for listing in (Listing.PROMPTS, Listing.RESOURCES, Listing.TEMPLATES)
        )
        tools = [tool.ref.name for tool in self.inner.offered()]
        return {Listing.TOOLS: tools, Listing.PROMPTS: prompts, Listing.RESOURCES: [*resources, *templates]}

    def offered(self) -> tuple[RemoteTool, ...]:
        """See `LiveEndpoint`."""
        return self.published().tools

    def offers(self, listing: Listing) -> tuple[Offered, ...]:
        """See `LiveEndpoint`."""
        offered = self.inner.offers(listing)
        known = self._offers.get(listing)
        if known is None or known[0] is not offered:
            known = self._offers[listing] = offered, publish_offers(listing, offered, self.overrides)
        return known[1]

    def has_linked(self, uri: str) -> bool:
        """See `LiveEndpoint`."""
        return not self._hides_uri(uri) and self.inner.has_linked(uri)

    def task_support(self) -> TaskSupport:
        """See `LiveEndpoint`."""
        return self.inner.task_support()

    # What is asked

    def refusal(self, tool: str) -> ProtocolFault | None:
        """See `LiveEndpoint`."""
        own = self._own_tool(tool)
        return own if isinstance(own, ProtocolFault) else self.inner.refusal(own)

    def begin(self, call: RawCall, deliver: Deliver) -> PendingCall | None:
        """See `LiveEndpoint`."""
        own = self._own_tool(call.tool, call.client)
        if isinstance(own, ProtocolFault):
            return refuse(deliver, own)
        arguments = self._with_given(own, call.tool, call.arguments)
        if isinstance(arguments, ProtocolFault):
            return refuse(deliver, arguments)
        return self.inner.begin(msgspec.structs.replace(call, tool=own, arguments=arguments), deliver)

    def forward(self, request: RawRequest, deliver: Deliver) -> PendingCall:
        """See `LiveEndpoint`."""
        own = self._own_request(request)
        return refuse(deliver, own) if isinstance(own, ProtocolFault) else self.inner.forward(own, deliver)

    def subscribe(self, request: RawRequest, deliver: Deliver) -> PendingCall:
        """See `LiveEndpoint`."""
        own = self._own_request(request)
        return refuse(deliver, own) if isinstance(own, ProtocolFault) else self.inner.subscribe(own, deliver)

    async def invoke(self, name: str, args: object = None) -> RemoteCallResult:
        """See `ServerEndpoint`."""
        own = self._own_tool(name)
        if isinstance(own, ProtocolFault):
            raise own
        arguments = self._with_given(own, name, arguments_json(args))
        if isinstance(arguments, ProtocolFault):
            raise arguments
        return await self.inner.invoke(own, msgspec.json.decode(arguments))

    def _own_tool(self, tool: str, client: Client | None = None) -> str | ProtocolFault:
        """What the server calls a tool, or why there is none; the client hears of no tool that it may not use."""
        own = self.overrides.own(tool)
        if own is None:
            known = [each for each in self.offered() if client is not None and client.allows(each.descriptor.name)]
            hint = did_you_mean(tool, [each.ref.name for each in known])
            return _refused(f"{self._id} offers no tool {tool[:MAX_NAME_CHARS]!r}{hint}", "unknown_tool")
        if (reason := self.published().refused.get(own)) is not None:
            return _refused(f"{self._id} cannot offer {tool!r} as the configuration says: {reason}", "unknown_tool")
        return own

    def _with_given(self, own: str, tool: str, sent: bytes) -> bytes | ProtocolFault:
        """The arguments of a call with those that the user gives, or why it may not be made so."""
        if not (given := self.overrides.arguments.get(own)):
            return sent
        try:
            return with_arguments(sent, given)
        except ArgumentError as error:
            return _refused(f"{tool}: {error}", "bad_arguments")

    def _own_request(self, request: RawRequest) -> RawRequest | ProtocolFault:
        """A request in the server's own words, or why it may not be made."""
        if request.method.startswith("tasks/"):
            return request
        params = _members.decode(request.params or b"{}")
        match request.method:
            case "tools/call":
                return self._own_call(request, params)
            case "prompts/get":
                own = self._own_prompt(_text(params.get("name")))
                return own if isinstance(own, ProtocolFault) else _with(request, params, "name", own)
            case "completion/complete":
                return self._own_completion(request, params)
            case _:
                return self._refused_uri(_text(params.get("uri"))) or request

    def _own_call(self, request: RawRequest, params: dict[str, Raw]) -> RawRequest | ProtocolFault:
        tool = _text(params.get("name"))
        own = self._own_tool(tool, request.client)
        if isinstance(own, ProtocolFault):
            return own
        arguments = self._with_given(own, tool, bytes(params.get("arguments", b"{}")))
        if isinstance(arguments, ProtocolFault):
            return arguments
        return _with(request, params | {"name": Raw(msgspec.json.encode(own))}, "arguments", Raw(arguments))

    def _own_prompt(self, prompt: str) -> str | ProtocolFault:
        own = self.overrides.own(prompt)
        if own is not None:
            return own
        return _refused(f"{self._id} offers no prompt {prompt[:MAX_NAME_CHARS]!r}", "unknown_prompt")

    def _own_completion(self, request: RawRequest, params: dict[str, Raw]) -> RawRequest | ProtocolFault:
        reference = _members.decode(params.get("ref", b"{}"))
        if not is_of_prompt(reference):
            return self._refused_completion(request, _text(reference.get("uri"))) or request
        own = self._own_prompt(_text(reference.get("name")))
        if isinstance(own, ProtocolFault):
            return own
        return _with(request, params, "ref", reference | {"name": Raw(msgspec.json.encode(own))})

    def _refused_completion(self, request: RawRequest, uri: str) -> ProtocolFault | None:
        if not self.overrides.hide:
            return None
        if (refused := self._refused_uri(uri)) is not None:
            return refused
        try:
            return self._refused_uri(completed_uri(request.params), is_listed=True)
        except msgspec.DecodeError as error:
            return _refused(f"the params of {request.method} cannot be read: {error}", "bad_arguments")

    def _refused_uri(self, uri: str, *, is_listed: bool = False) -> ProtocolFault | None:
        if not self._hides_uri(uri, is_listed=is_listed):
            return None
        return _refused(f"{self._id} is not known to have the resource {uri[:MAX_NAME_CHARS]!r}", "unknown_resource")

    def _hides_uri(self, uri: str, *, is_listed: bool = False) -> bool:
        """Return whether a URI may be hidden, or fits a hidden template and no shown one.

        Args:
            uri: the URI as the client spells it.
            is_listed: whether the server spells it so itself, though it is in no list and no link.
        """
        if not self.overrides.hide:
            return False
        shown, templates = self.offers(Listing.RESOURCES), self.inner.offers(Listing.TEMPLATES)
        if any(each.key == uri for each in shown):
            return False
        listed = (*self.inner.offers(Listing.RESOURCES), *templates)
        is_listed = is_listed or any(each.key == uri for each in listed) or self.inner.has_linked(uri)
        judged = judged_uri(uri, is_listed=is_listed)
        if self.overrides.hides(judged):
            return True
        hidden = [as_glob(each.key) for each in templates if self.overrides.hides(each.key)]
        return may_fit(judged, hidden) and not surely_fits(
            judged, [as_glob(each.key) for each in self.offers(Listing.TEMPLATES)]
        )

    # What is the same

    @property
    def _id(self) -> str:
        return self.inner.config.id

    @property
    def config(self) -> ServerConfig:
        """See `ServerEndpoint`."""
        return self.inner.config

    @property
    def phase(self) -> EndpointPhase:
        """See `ServerEndpoint`."""
        return self.inner.phase

    def status(self) -> EndpointStatus:
        """See `ServerEndpoint`."""
        return self.inner.status()

    async def open(self) -> None:
        """See `ServerEndpoint`."""
        await self.inner.open()

    async def close(self) -> None:
        """See `ServerEndpoint`."""
        await self.inner.close()

    async def list_tools(self) -> tuple[RemoteTool, ...]:
        """See `ServerEndpoint`."""
        await self.inner.list_tools()
        return self.offered()

    def unsubscribe(self, client: Client, uri: str) -> None:
        """See `LiveEndpoint`."""
        self.inner.unsubscribe(client, uri)

    def set_level(self, client: Client, level: str) -> None:
        """See `LiveEndpoint`."""
        self.inner.set_level(client, level)

    def leave(self, client: Client) -> None:
        """See `LiveEndpoint`."""
        self.inner.leave(client)

    def tell(self, method: str, params: bytes = b"{}") -> None:
        """See `LiveEndpoint`."""
        self.inner.tell(method, params)


def _text(value: Raw | None) -> str:
    return msgspec.json.decode(value, type=str) if value is not None else ""


def _with(request: RawRequest, params: dict[str, Raw], member: str, value: object) -> RawRequest:
    return msgspec.structs.replace(
        request, params=msgspec.json.encode({**params, member: Raw(msgspec.json.encode(value))})
    )


def _refused(message: str, code: str) -> ProtocolFault:
    return ProtocolFault.not_sent(FaultKind.TOOL_ERROR, message, code)


_members: Final = msgspec.json.Decoder(dict[str, Raw])
