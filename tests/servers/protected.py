"""Pretends to be a remote MCP server that wants a login, and the authorization server that gives it, in one process.

    /mcp                                          `http_server`'s tools, both eras, for who has a token for just that
    /.well-known/oauth-protected-resource/mcp     RFC 9728
    /.well-known/oauth-authorization-server       RFC 8414
    /register /authorize /token /revoke           RFC 7591, 6749, 7636, 8707, 9207, 7009
    /client.json                                  with --documents: the client-id document of whoever logs in
    /tests/tokens                                 what was given and asked for, as JSON, for the test alone
    /tests/revoke                                 have the server refuse the tokens that it has given so far
    /tests/end                                    the same, and none of them can be renewed

Whoever opens /authorize is logged in.  Codes and refresh tokens are good for one use, as OAuth 2.1 wants it; a stolen
code is of no use without its verifier.  Prints where it listens, as `http_server` does.
"""

import argparse
import base64
import hashlib
import json
import secrets
import ssl
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import anyio.to_thread
from http_server import STREAMABLE_PATH, application, call_tool, legacy_only, list_tools, listen_and_serve
from mcp.server.lowlevel import Server
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

CLIENT_ID: Final = "machine"
CLIENT_SECRET: Final = "machine-s3cret"


@dataclass
class Issuer:
    """The authorization server's memory.

    Attributes:
        life_s: of an access token.
        codes: by code, what it was given for.
        refreshes: by refresh token, the scopes.
        tokens: by access token, the resource.
        granted: by access token, its scopes.
        asked: every token request, for the test.
    """

    life_s: int
    scopes: tuple[str, ...]
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    refreshes: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    granted: dict[str, str] = field(default_factory=dict)
    asked: list[dict[str, str]] = field(default_factory=list)

    def give(self, resource: str, scope: str, *, refreshes: bool = True) -> JSONResponse:
        access = f"at-{secrets.token_hex(16)}"
        self.tokens[access] = resource
        self.granted[access] = scope
        body: dict[str, Any] = {
            "access_token": access,
            "token_type": "Bearer",
            "expires_in": self.life_s,
            "scope": scope,
        }
        if refreshes:
            body["refresh_token"] = f"rt-{secrets.token_hex(16)}"
            self.refreshes[body["refresh_token"]] = scope
        return JSONResponse(body, headers={"Cache-Control": "no-store"})


def refusal(error: str) -> JSONResponse:
    """See RFC 6749, 5.2."""
    return JSONResponse({"error": error}, status_code=400)


class Endpoints:
    """The authorization server's endpoints, at `origin`."""

    def __init__(self, issuer: Issuer, authority: str | None = None) -> None:
        """With an authority it takes client-id documents, fetched by its certificates, and registers nobody."""
        self.issuer = issuer
        self.authority = authority

    async def resource(self, request: Request) -> Response:
        """See RFC 9728, 3.2."""
        origin = origin_of(request)
        return JSONResponse(
            {
                "resource": f"{origin}{STREAMABLE_PATH}",
                "authorization_servers": [origin],
                "scopes_supported": list(self.issuer.scopes),
            }
        )

    async def metadata(self, request: Request) -> Response:
        """See RFC 8414, 3.2."""
        origin = origin_of(request)
        return JSONResponse(
            {
                "issuer": origin,
                "authorization_endpoint": f"{origin}/authorize",
                "token_endpoint": f"{origin}/token",
                "registration_endpoint": f"{origin}/register",
                "revocation_endpoint": f"{origin}/revoke",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["client_secret_basic", "none"],
                "authorization_response_iss_parameter_supported": True,
                "client_id_metadata_document_supported": self.authority is not None,
            }
        )

    async def register(self, request: Request) -> Response:
        """See RFC 7591, 3.2.1."""
        wish = await request.json()
        if self.authority is not None:
            return refusal("access_denied")
        return JSONResponse({**wish, "client_id": f"client-{secrets.token_hex(8)}"}, status_code=201)

    async def client(self, request: Request) -> Response:
        url = f"{origin_of(request)}{request.url.path}"
        return JSONResponse({"client_id": url, "client_name": "Ours", "redirect_uris": ["http://127.0.0.1/callback"]})

    async def _is_known(self, asked: Mapping[str, str]) -> bool:
        """Whether the document of a client allows where it is to be sent back to, at any port (RFC 8252 7.3)."""

        def fetch() -> Any:
            context = ssl.create_default_context(cafile=self.authority)
            with urllib.request.urlopen(asked["client_id"], timeout=10, context=context) as document:
                return json.load(document)

        found, back = await anyio.to_thread.run_sync(fetch), urlsplit(asked["redirect_uri"])
        allowed = f"{back.scheme}://{back.hostname}{back.path}" in found["redirect_uris"]
        return bool(found["client_id"] == asked["client_id"] and allowed)

    async def authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        if asked.get("code_challenge_method") != "S256" or not asked.get("resource"):
            return refusal("invalid_request")
        if self.authority is not None and not await self._is_known(asked):
            return refusal("invalid_client")
        code = f"code-{secrets.token_hex(16)}"
        self.issuer.codes[code] = asked
        back = {"code": code, "state": asked.get("state", ""), "iss": origin_of(request)}
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(back)}", status_code=302)

    async def token(self, request: Request) -> Response:
        """See RFC 6749, 3.2."""
        asked = dict(parse_qsl((await request.body()).decode()))
        self.issuer.asked.append({"grant_type": asked.get("grant_type", "")})
        match asked.get("grant_type"):
            case "authorization_code":
                return self._by_code(asked)
            case "refresh_token":
                scope = self.issuer.refreshes.pop(asked.get("refresh_token", ""), None)
                return refusal("invalid_grant") if scope is None else self.issuer.give(asked["resource"], scope)
            case "client_credentials":
                return self._by_secret(request.headers, asked)
            case _:
                return refusal("unsupported_grant_type")

    def _by_code(self, asked: Mapping[str, str]) -> Response:
        begun = self.issuer.codes.pop(asked.get("code", ""), None)
        if begun is None:
            return refusal("invalid_grant")
        digest = hashlib.sha256(asked.get("code_verifier", "").encode()).digest()
        is_ours = base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == begun["code_challenge"]
        same = all(asked.get(name) == begun.get(name) for name in ("client_id", "redirect_uri", "resource"))
        return (
            self.issuer.give(begun["resource"], begun.get("scope", ""))
            if is_ours and same
            else refusal("invalid_grant")
        )

    def _by_secret(self, headers: Mapping[str, str], asked: Mapping[str, str]) -> Response:
        kind, _, value = headers.get("authorization", "").partition(" ")
        both = base64.b64decode(value).decode() if kind == "Basic" else ""
        if tuple(map(unquote, both.split(":"))) != (CLIENT_ID, CLIENT_SECRET):
            return JSONResponse({"error": "invalid_client"}, status_code=401)
        return self.issuer.give(asked["resource"], asked.get("scope", ""), refreshes=False)

    async def revoke(self, request: Request) -> Response:
        """See RFC 7009, 2."""
        token = dict(parse_qsl((await request.body()).decode())).get("token", "")
        self.issuer.refreshes.pop(token, None)
        self.issuer.tokens.pop(token, None)
        return Response(status_code=200)

    async def forget(self, request: Request) -> Response:
        self.issuer.tokens.clear()
        return Response(status_code=200)

    async def end(self, request: Request) -> Response:
        self.issuer.refreshes.clear()
        return await self.forget(request)

    async def told(self, request: Request) -> Response:
        return JSONResponse({"asked": self.issuer.asked, "refreshes": len(self.issuer.refreshes)})


def origin_of(request: Request) -> str:
    return f"{request.url.scheme}://{request.url.netloc}"


class Guard:
    """Lets in who has a token for just this resource; calls of `add` want the scope `write`, too."""

    def __init__(self, app: ASGIApp, issuer: Issuer) -> None:
        self._app = app
        self._issuer = issuer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401 and say where tokens are given."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        here = f"{origin_of(request)}{STREAMABLE_PATH}"
        status, error = 401, 'error="invalid_token"'
        if self._issuer.tokens.get(token) == here:
            body = await request.body()
            if b'"add"' not in body or "write" in self._issuer.granted[token].split():
                await self._app(scope, said_again(body, receive), send)
                return
            status, error = 403, 'error="insufficient_scope", scope="write"'
        place = f"{origin_of(request)}/.well-known/oauth-protected-resource{STREAMABLE_PATH}"
        challenge = {"WWW-Authenticate": f'Bearer {error}, resource_metadata="{place}"'}
        await JSONResponse({"error": "refused"}, status_code=status, headers=challenge)(scope, receive, send)


def said_again(body: bytes, receive: Receive) -> Receive:
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Any:
        return left.pop() if left else await receive()

    return again


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--life", type=int, default=3600, help="of an access token, seconds")
    parser.add_argument("--scopes", default="read", help="that the server wants")
    parser.add_argument("--tls", nargs=2, metavar=("CERT", "KEY"), help="speak https by these files")
    parser.add_argument("--documents", action="store_true", help="take client-id documents, and register nobody")
    parser.add_argument("--legacy", action="store_true", help="speak the legacy era alone")
    options = parser.parse_args()
    issuer = Issuer(options.life, tuple(options.scopes.split()))
    server = Server("protected", version="1.0.0", on_list_tools=list_tools, on_call_tool=call_tool)
    if options.legacy:
        server.middleware.append(legacy_only)
    mcp = application(server, "streamable")
    endpoints, guarded = Endpoints(issuer, options.tls[0] if options.documents else None), Guard(mcp, issuer)
    login = Starlette(
        routes=[
            Route("/.well-known/oauth-protected-resource/mcp", endpoints.resource),
            Route("/.well-known/oauth-authorization-server", endpoints.metadata),
            Route("/register", endpoints.register, methods=["POST"]),
            Route("/authorize", endpoints.authorize),
            Route("/client.json", endpoints.client),
            Route("/token", endpoints.token, methods=["POST"]),
            Route("/revoke", endpoints.revoke, methods=["POST"]),
            Route("/tests/tokens", endpoints.told),
            Route("/tests/revoke", endpoints.forget, methods=["POST"]),
            Route("/tests/end", endpoints.end, methods=["POST"]),
        ]
    )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        is_mcp = scope["type"] != "http" or scope["path"] == STREAMABLE_PATH
        await (guarded if is_mcp else login)(scope, receive, send)

    listen_and_serve(app, options.port, STREAMABLE_PATH, options.tls)


if __name__ == "__main__":
    main()
