"""Ask an authorization server for tokens: for a code, for a refresh token, for a machine's secret.  Pure.

Conversations of one request each; the answer is bounded and checked before anything of it is used.
"""

import base64
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

import msgspec

from quarterdeck_protocol.challenge import read_scopes
from quarterdeck_protocol.link.frames import MAX_BEARER_BYTES

from .authorization import Asked
from .http_messages import (
    Conversation,
    DeniedError,
    HttpAnswer,
    HttpRequest,
    LoginError,
    UnavailableError,
    UnsafeError,
    decoded,
    told,
)
from .metadata import ServerMetadata
from .terms import Client, Grant, Terms, Tokens

METHODS: Final = ("client_secret_basic", "client_secret_post", "none")
"""Supported ways of client authentication, the preferred first."""

MAX_LIFE_S: Final = 10 * 365 * 86_400.0
"""The longest life of an access token; a longer one is cut to this."""

MAX_SECRET_CHARS: Final = 4096

TOO_MANY_REQUESTS: Final = 429
SERVER_ERROR: Final = 500

_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
"""Characters that a header can hold; RFC 6749 knows no other tokens."""


def register(server: ServerMetadata, redirect_uri: str, name: str, scopes: tuple[str, ...]) -> Conversation[Client]:
    """Register as a client of a server that does not know us (RFC 7591); raise LoginError if it refuses."""
    if server.registration_endpoint is None:
        raise DeniedError(
            f"{told(server.issuer)} registers nobody by itself: register Quarterdeck there by hand, with the redirect "
            f'URI {redirect_uri}, and put the client id into the server\'s row: "auth": {{"client_id": "…"}}'
        )
    wish = {
        "client_name": name,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
        **({"scope": " ".join(scopes)} if scopes else {}),
    }
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    answer = yield HttpRequest("POST", server.registration_endpoint, headers, msgspec.json.encode(wish))
    if answer.status not in (200, 201):
        raise _refusal(answer, server.issuer, "does not register us")
    found = decoded(answer.body, _Registered)
    if found is None or not 1 <= len(found.client_id) <= MAX_SECRET_CHARS:
        raise UnsafeError(f"{told(server.issuer)} answered our registration with something else")
    secret = found.client_secret or ""
    method = found.token_endpoint_auth_method or ("client_secret_basic" if secret else "none")
    if method not in METHODS or len(secret) > MAX_SECRET_CHARS:
        raise UnsafeError(f"{told(server.issuer)} wants us to show who we are by {told(method)}, which we cannot")
    return Client(id=found.client_id, secret=secret, method=method)


def known_client(server: ServerMetadata, client_id: str, secret: str) -> Client:
    """Return a client registered by hand; raise UnsafeError if the server takes its secret in no way we know."""
    if not secret:
        return Client(id=client_id)
    # What a server that says nothing takes: RFC 8414, 2.
    taken = server.token_endpoint_auth_methods_supported or ("client_secret_basic",)
    for method in METHODS[:2]:
        if method in taken:
            return Client(id=client_id, secret=secret, method=method)
    ways = told(", ".join(taken))
    raise UnsafeError(f"{told(server.issuer)} takes a client's secret only by {ways}, which we cannot")


def redeem(server: ServerMetadata, client: Client, asked: Asked, code: str, terms: Terms) -> Conversation[Tokens]:
    """Get tokens for the code of a user's browser; raise LoginError for a refusal, or more scopes than asked for."""
    wish = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": asked.redirect_uri,
        "code_verifier": asked.verifier,
        "resource": terms.resource,
    }
    answer = yield _token_request(server.token_endpoint, client, wish)
    return _read_tokens(answer, terms)


def by_credentials(token_endpoint: str, client: Client, terms: Terms) -> Conversation[Tokens]:
    """Get tokens for a machine (RFC 6749, 4.4)."""
    wish = {"grant_type": "client_credentials", "resource": terms.resource}
    answer = yield _token_request(token_endpoint, client, wish | _scope(terms))
    return _read_tokens(answer, terms)


def refresh(grant: Grant) -> Conversation[Tokens]:
    """Get new tokens, keeping what the answer leaves out; raise LoginError for a refusal, or more scopes."""
    wish = {"grant_type": "refresh_token", "refresh_token": grant.tokens.refresh, "resource": grant.terms.resource}
    answer = yield _token_request(grant.token_endpoint, grant.client, wish | _scope(grant.terms))
    found = _read_tokens(answer, grant.terms)
    return found if found.refresh else msgspec.structs.replace(found, refresh=grant.tokens.refresh)


def revoke(grant: Grant) -> Conversation[bool]:
    """Revoke the tokens of a login (RFC 7009). Return whether the server accepted."""
    if not grant.revocation_endpoint:
        return False
    tokens = grant.tokens
    wish = {"token": tokens.access, "token_type_hint": "access_token"}
    if tokens.refresh:  # with which all others of this login end, too
        wish = {"token": tokens.refresh, "token_type_hint": "refresh_token"}
    answer = yield _token_request(grant.revocation_endpoint, grant.client, wish)
    return answer.status == 200


class _Registered(msgspec.Struct):
    client_id: str
    client_secret: str | None = None
    token_endpoint_auth_method: str | None = None


class _Given(msgspec.Struct):
    access_token: str
    token_type: str
    expires_in: float | str | None = None
    refresh_token: str | None = None
    scope: str | None = None


class _Refused(msgspec.Struct):
    error: str = ""
    error_description: str | None = None


def _scope(terms: Terms) -> dict[str, str]:
    return {"scope": " ".join(terms.scopes)} if terms.scopes else {}


def _token_request(endpoint: str, client: Client, wish: Mapping[str, str]) -> HttpRequest:
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    form = dict(wish)
    match client.method:
        case "client_secret_basic":
            both = f"{quote(client.id, safe='')}:{quote(client.secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(both.encode()).decode()}"
        case "client_secret_post":
            form |= {"client_id": client.id, "client_secret": client.secret}
        case _:
            form["client_id"] = client.id
    return HttpRequest("POST", endpoint, headers, urlencode(form).encode())


def _read_tokens(answer: HttpAnswer, terms: Terms) -> Tokens:
    """Return the tokens of an answer; `ends_at` is their life in seconds until `dated` sets the times."""
    issuer = told(terms.issuer)
    if answer.status != 200:
        raise _refusal(answer, terms.issuer, "gives no token")
    found = decoded(answer.body, _Given)
    if found is None:
        raise UnsafeError(f"{issuer} answered with something else than a token")
    if found.token_type.lower() != "bearer":
        raise UnsafeError(f"{issuer} gave a token of a kind that we cannot use: {told(found.token_type)}")
    for token in (found.access_token, *filter(None, (found.refresh_token,))):
        if len(token) > MAX_BEARER_BYTES:
            raise UnsafeError(f"{issuer} gave a token of {len(token):,} bytes; {MAX_BEARER_BYTES:,} are the most")
        if not _TOKEN.fullmatch(token):
            raise UnsafeError(f"{issuer} gave a token that no header can hold")
    scopes = read_scopes(found.scope) if found.scope is not None else None
    if terms.scopes and scopes is not None and (wider := sorted(set(scopes) - set(terms.scopes))):
        raise UnsafeError(f"{issuer} gave more than was asked for: {told(' '.join(wider))}")
    return Tokens(
        access=found.access_token, refresh=found.refresh_token or "", ends_at=_life_s(found.expires_in), scopes=scopes
    )


def dated(tokens: Tokens, now: float) -> Tokens:
    """Return tokens that were given `now`, in seconds since the epoch, with absolute times."""
    ends_at = None if tokens.ends_at is None else now + tokens.ends_at
    return msgspec.structs.replace(tokens, given_at=now, ends_at=ends_at)


def _life_s(said: float | str | None) -> float | None:
    """Return the seconds that an access token lasts; some servers write the number as text."""
    try:
        life_s = float(said) if said is not None else None
    except ValueError:
        return None
    return None if life_s is None or life_s != life_s else min(max(0.0, life_s), MAX_LIFE_S)


def _refusal(answer: HttpAnswer, issuer: str, what: str) -> LoginError:
    if answer.status >= SERVER_ERROR or answer.status == TOO_MANY_REQUESTS:
        return UnavailableError(f"{told(issuer)} {what} now: it answered {answer.status}")
    found = decoded(answer.body, _Refused) or _Refused()
    why = found.error or f"it answered {answer.status}"
    more = f" ({told(found.error_description)})" if found.error_description else ""
    return DeniedError(f"{told(issuer)} {what}: {told(why)}{more}", found.error)
