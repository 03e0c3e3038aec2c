"""Read what a protected server and an authorization server say of themselves, and refuse what is unsafe.  Pure.

    the resource    its protected-resource metadata (RFC 9728)
    the issuer      its authorization-server metadata (RFC 8414, OpenID Connect Discovery)

Both documents come from strangers who gain by lying: one server may name another's resource, so that it is sent a token
for that; one issuer may speak for another (mix-up), or forget that it knows PKCE.  Addresses are judged where they are
connected to; here only what a URL itself says is.
"""

from typing import Final

import msgspec
from httpx2 import URL, InvalidURL

from quarterdeck.tools.web.urls import UrlError, parse_url
from quarterdeck_protocol.challenge import Challenge

from .http_messages import UnsafeError, decoded, told

S256: Final = "S256"
"""The one way to prove that the code is ours which a thief of it cannot copy (RFC 7636, 4.2)."""


class ResourceMetadata(msgspec.Struct, frozen=True):
    """RFC 9728, 2, as far as we use it."""

    resource: str
    authorization_servers: tuple[str, ...] | None = None
    scopes_supported: tuple[str, ...] | None = None


class ServerMetadata(msgspec.Struct, frozen=True):
    """RFC 8414, 2, as far as we use it."""

    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    scopes_supported: tuple[str, ...] | None = None
    response_types_supported: tuple[str, ...] | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] | None = None
    code_challenge_methods_supported: tuple[str, ...] | None = None
    client_id_metadata_document_supported: bool | None = None
    authorization_response_iss_parameter_supported: bool | None = None


def resource_metadata_urls(url: str, challenge: Challenge) -> tuple[str, ...]:
    """Return where a server's metadata may be, likeliest first (RFC 9728, 3.1; MCP, "Protected Resource Metadata")."""
    at = URL(url)
    path = _path_of(at)
    named = (challenge.resource_metadata,) if challenge.resource_metadata else ()
    well_known = "/.well-known/oauth-protected-resource"
    return tuple(dict.fromkeys((*named, *(_at_root(at, f"{well_known}{each}") for each in (path, "")))))


def server_metadata_urls(issuer: str) -> tuple[str, ...]:
    """Return where an issuer's metadata may be, likeliest first (RFC 8414, 3.1, 5; OpenID Connect Discovery, 4)."""
    at = URL(issuer)
    path = _path_of(at)
    oauth, openid = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
    paths = (f"{oauth}{path}", f"{openid}{path}", f"{path}{openid}")
    return tuple(dict.fromkeys(_at_root(at, each) for each in paths))


def _path_of(url: URL) -> str:
    """Return the raw path: unescaped it may be no part of a path, or of any URL."""
    return url.raw_path.partition(b"?")[0].decode("ascii").rstrip("/")


def _at_root(url: URL, path: str) -> str:
    return str(url.copy_with(path=path, query=None, fragment=None))


def read_resource(body: bytes, url: str) -> ResourceMetadata | None:
    """Return the metadata of the server at `url`, None for another body; raise UnsafeError for another resource's."""
    found = decoded(body, ResourceMetadata)
    if found is not None and not covers(found.resource, url):
        raise UnsafeError(f"its metadata is of {told(found.resource)}, another resource: no token is asked for")
    return found


def read_server(body: bytes, issuer: str, row_url: str) -> ServerMetadata | None:
    """Return the metadata of `issuer`, None for another body.

    Raise UnsafeError if it is another issuer's, or names an endpoint that tokens must not be sent to.
    """
    found = decoded(body, ServerMetadata)
    if found is None:
        return None
    if found.issuer != issuer:
        raise UnsafeError(f"the authorization server {told(issuer)} says that it is {told(found.issuer)}")
    for name in ("authorization", "token", "registration", "revocation"):
        if (endpoint := getattr(found, f"{name}_endpoint")) is not None:
            checked_endpoint(endpoint, row_url, f"the {name} endpoint of {told(issuer)}")
    return found


def check_code_flow(server: ServerMetadata) -> str:
    """Return the page for logging in; raise UnsafeError if there is none where a stolen code is useless."""
    if S256 not in (server.code_challenge_methods_supported or ()):
        raise UnsafeError(
            f"{told(server.issuer)} does not say that it knows PKCE with S256: a code could be stolen on its way"
        )
    if server.authorization_endpoint is None or "code" not in (server.response_types_supported or ("code",)):
        raise UnsafeError(f"{told(server.issuer)} has no page where a person could log in")
    return server.authorization_endpoint


def checked_endpoint(text: str, row_url: str, what: str) -> str:
    """Return a URL that may be asked: https, or http if the row uses it for that host; else raise UnsafeError."""
    try:
        url, row = parse_url(text), URL(row_url)
        asked = URL(text)  # blanks and all
    except (UrlError, InvalidURL) as error:
        raise UnsafeError(f"{what} is no URL that can be used: {error}") from None
    if url.scheme != "https" and not (row.scheme == "http" and url.host == row.host):
        raise UnsafeError(f"{what} is not encrypted: {told(text)}")
    if asked.fragment:  # behind which everything that is asked there would be lost
        raise UnsafeError(f"{what} has a fragment: {told(text)}")
    return text


def covers(resource: str, url: str) -> bool:
    """Return whether a token for `resource` is for a server at `url`: the same URL, or one above at its origin."""
    try:
        outer, inner = URL(resource), URL(url)
    except InvalidURL:
        return False
    if (outer.scheme, outer.host, outer.port) != (inner.scheme, inner.host, inner.port) or outer.userinfo:
        return False
    if outer.query or outer.fragment:
        return outer == inner
    return f"{inner.path.rstrip('/')}/".startswith(f"{outer.path.rstrip('/')}/")


def resource_of(url: str) -> str:
    """Return the name of a server that names itself by nothing else (RFC 8707, 2)."""
    return str(URL(url).copy_with(fragment=None))
