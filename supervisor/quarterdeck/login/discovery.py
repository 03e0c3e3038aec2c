"""Find out who gives tokens for a server, from its refusal alone.  Pure.

A conversation: the server is asked without a token; what it and its authorization server say of themselves is read in
turn.  Nothing of an older authorization is guessed: without metadata there is no login.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from quarterdeck_protocol.challenge import Challenge, read_challenge, usable_scopes
from quarterdeck_protocol.configs import LoginConfig, RemoteServerConfig
from quarterdeck_protocol.identity import CLIENT_NAME, CLIENT_VERSION

from .http_messages import Conversation, DeniedError, HttpRequest, UnavailableError, UnsafeError, told
from .metadata import (
    ResourceMetadata,
    ServerMetadata,
    checked_endpoint,
    read_resource,
    read_server,
    resource_metadata_urls,
    resource_of,
    server_metadata_urls,
)
from .terms import Terms
from .token_requests import SERVER_ERROR, TOO_MANY_REQUESTS

OFFLINE: Final = "offline_access"
"""The scope by which OpenID Connect gives refresh tokens (Core, 11)."""

REFUSED: Final = (401, 403)


@dataclass(frozen=True, slots=True)
class Discovered:
    """The authorization server of a server, and the terms to ask for."""

    server: ServerMetadata
    terms: Terms

    def with_scopes(self, scopes: tuple[str, ...]) -> "Discovered":
        """Return the same server with a request for these scopes."""
        return replace(self, terms=Terms.of(self.terms.issuer, self.terms.resource, scopes))


def discover(
    config: RemoteServerConfig, known_issuer: str = "", more: tuple[str, ...] = ()
) -> Conversation[Discovered]:
    """Find the authorization server; raise LoginError if no login is wanted, or none is safe.

    `known_issuer` of an earlier login is preferred among several; `more` scopes are added to the server's.
    """
    answer = yield _greeting(config)
    challenge = read_challenge(answer.headers.get("www-authenticate", "")) if answer.status in REFUSED else Challenge()
    resource = yield from _find_resource(config.url, challenge)
    if resource is None and answer.status not in REFUSED:
        raise DeniedError(f"{told(config.url)} wants no login: it answered {answer.status} without one")
    issuer = _choose_issuer(config, resource, known_issuer)
    server = yield from _find_server(issuer, config.url)
    scopes = _choose_scopes(config.auth, challenge, resource, server)
    wanted = tuple(dict.fromkeys((*scopes, *more)))
    named = resource.resource if resource is not None else resource_of(config.url)
    return Discovered(server, Terms.of(server.issuer, named, wanted))


def _greeting(config: RemoteServerConfig) -> HttpRequest:
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": CLIENT_NAME, "version": CLIENT_VERSION},
    }
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    own = {name: value for name, value in config.headers.items() if name.lower() != "authorization"}
    return HttpRequest("POST", config.url, headers | own, body, needs_body=False)


def _find_resource(url: str, challenge: Challenge) -> Conversation[ResourceMetadata | None]:
    for place in resource_metadata_urls(url, challenge):
        checked_endpoint(place, url, "where the server says that its metadata is")
        answer = yield HttpRequest("GET", place, _ACCEPT)
        if answer.status >= SERVER_ERROR or answer.status == TOO_MANY_REQUESTS:
            raise UnavailableError(f"{told(place)} answered {answer.status}")
        if answer.status == 200 and (found := read_resource(answer.body, url)) is not None:
            return found
    return None


def _choose_issuer(config: RemoteServerConfig, resource: ResourceMetadata | None, known: str) -> str:
    wanted = config.auth.issuer
    named = (resource.authorization_servers or ()) if resource is not None else ()
    if wanted is not None:
        if named and wanted not in named:
            raise UnsafeError(f"the server names {told(', '.join(named))}, and not {wanted}, which its row asks for")
        return wanted
    if not named:
        raise DeniedError(
            f"{told(config.url)} does not say who gives tokens for it: name its authorization server in its row, "
            '"auth": {"issuer": "https://…"}, or get a token by hand'
        )
    return known if known in named else named[0]


def _find_server(issuer: str, row_url: str) -> Conversation[ServerMetadata]:
    checked_endpoint(issuer, row_url, "the authorization server")
    for place in server_metadata_urls(issuer):
        answer = yield HttpRequest("GET", place, _ACCEPT)
        if answer.status >= SERVER_ERROR or answer.status == TOO_MANY_REQUESTS:
            raise UnavailableError(f"{told(place)} answered {answer.status}")
        if answer.status == 200 and (found := read_server(answer.body, issuer, row_url)) is not None:
            return found
    raise UnsafeError(f"the authorization server {told(issuer)} says nothing of itself that can be read")


def _choose_scopes(
    login: LoginConfig, challenge: Challenge, resource: ResourceMetadata | None, server: ServerMetadata
) -> tuple[str, ...]:
    """Return the scopes to ask for (MCP, "Scope Selection Strategy"): never all that the issuer knows."""
    if login.scopes:
        return login.scopes
    supported = usable_scopes(resource.scopes_supported if resource is not None else None)
    scopes = challenge.scopes or supported
    is_offline = login.needs_person and scopes and OFFLINE in (server.scopes_supported or ())
    return (*scopes, OFFLINE) if is_offline and OFFLINE not in scopes else scopes


_ACCEPT: Final[Mapping[str, str]] = {"Accept": "application/json"}
