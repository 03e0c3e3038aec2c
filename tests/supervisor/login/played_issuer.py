"""A remote server and its authorization server as values: what each of their URLs answers, with lies on demand."""

import base64
import hashlib
import json
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from quarterdeck.login.http_messages import Conversation, HttpAnswer, HttpRequest, T
from quarterdeck_protocol.configs import StreamableHttpServerConfig

URL = "https://mcp.example/mcp"
ISSUER = "https://as.example"
RESOURCE_METADATA = "https://mcp.example/.well-known/oauth-protected-resource/mcp"
SERVER_METADATA = "https://as.example/.well-known/oauth-authorization-server"


def config_of(url: str = URL, **auth: Any) -> StreamableHttpServerConfig:
    return StreamableHttpServerConfig(id="far", url=url, auth=auth)


class PlayedIssuer:
    """Answers by URL; whatever it does not know is 404.

    Attributes:
        resource: the server's metadata.
        server: the authorization server's.
        answers: what else is answered, before all of that, by URL.
        requests: all that was asked.
        tokens: of the next answer of the token endpoint.
    """

    def __init__(self) -> None:
        self.resource: dict[str, Any] = {
            "resource": URL,
            "authorization_servers": [ISSUER],
            "scopes_supported": ["read"],
        }
        self.server: dict[str, Any] = {
            "issuer": ISSUER,
            "authorization_endpoint": f"{ISSUER}/authorize",
            "token_endpoint": f"{ISSUER}/token",
            "registration_endpoint": f"{ISSUER}/register",
            "revocation_endpoint": f"{ISSUER}/revoke",
            "code_challenge_methods_supported": ["S256"],
        }
        self.challenge = f'Bearer error="invalid_token", resource_metadata="{RESOURCE_METADATA}"'
        self.answers: dict[str, HttpAnswer] = {}
        self.tokens: dict[str, Any] = {
            "access_token": "at-1",
            "token_type": "Bearer",
            "expires_in": 3600,
            "refresh_token": "rt-1",
        }
        self.requests: list[HttpRequest] = []

    def answer(self, request: HttpRequest) -> HttpAnswer:
        """What this request is answered with."""
        self.requests.append(request)
        if (given := self.answers.get(request.url)) is not None:
            return given
        match request.url:
            case _ if request.url == URL:
                return HttpAnswer(401, {"www-authenticate": self.challenge})
            case _ if request.url == RESOURCE_METADATA:
                return document(self.resource)
            case _ if request.url == SERVER_METADATA:
                return document(self.server)
            case "https://as.example/register":
                return document({"client_id": "client-1"}, 201)
            case "https://as.example/token":
                return document(self.tokens)
            case "https://as.example/revoke":
                return HttpAnswer(200)
            case _:
                return HttpAnswer(404)

    def converse(self, conversation: Conversation[T]) -> T:
        """What comes of a conversation."""
        answer: HttpAnswer | None = None
        while True:
            try:
                request = next(conversation) if answer is None else conversation.send(answer)
            except StopIteration as end:
                found: T = end.value
                return found
            answer = self.answer(request)

    @property
    def form(self) -> dict[str, str]:
        """The last form that was sent."""
        return dict(parse_qsl(self.requests[-1].body.decode()))


class PlayedHttp:
    """`GuardedHttp` over a played issuer."""

    def __init__(self, issuer: PlayedIssuer) -> None:
        self.issuer = issuer

    async def converse(self, conversation: Conversation[T]) -> T:
        return self.issuer.converse(conversation)


def document(value: object, status: int = 200) -> HttpAnswer:
    return HttpAnswer(status, {"content-type": "application/json"}, json.dumps(value).encode())


def s256(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def query_of(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))
