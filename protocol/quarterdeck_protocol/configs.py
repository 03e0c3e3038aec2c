"""What a user says about servers: frozen pydantic models in one union discriminated by `kind`.

Files, environment variables and mapped names are the supervisor's concern; here a configuration is already text
and numbers.  Pure.
"""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, ByteSize, Field, ValidationInfo, field_validator, model_validator

from .challenge import MAX_SCOPES, SCOPE
from .link.frames import MAX_RESULT_BYTES
from .names import is_server_id
from .policy import FrozenModel, SandboxPolicy, Text, VariableName
from .policy_values import MAX_SEAL_BYTES

CONNECT_TIMEOUT_S: Final = 60.0
"""From spawn to a finished handshake; package runners download on their first start."""

LIST_TIMEOUT_S: Final = 30.0
"""All pages of one tool list."""

CALL_TIMEOUT_S: Final = 300.0
"""One tool call; a client's shorter wish wins."""


class TransportKind(StrEnum):
    """How a server is reached."""

    STDIO = "stdio"
    SSE = "sse"
    STREAMABLE_HTTP = "streamable_http"


class TrustMode(StrEnum):
    """When a tool that a server defines may be called."""

    BASELINE = "baseline"
    """As it is first seen; a later change waits for approval."""
    STRICT = "strict"
    """Once it is approved."""
    OPEN = "open"
    """Always."""


class AskMode(StrEnum):
    """What becomes of a server's questions to its callers: elicitation, sampling, roots."""

    ALLOW = "allow"
    """All reach the client, with the server named; one that asks for a secret says so."""
    LABEL = "label"
    """The same, but one that asks for a secret is declined."""
    DENY = "deny"
    """None does: the server is told that nobody can be asked."""


class ServerScope(StrEnum):
    """Who has one process of a server together."""

    DECK = "deck"
    """All who have the deck; and all decks of a daemon that have the row."""
    SESSION = "session"
    """Each client's session for itself."""
    CLIENT = "client"
    """Each client for itself, with all its sessions; with a home, secrets and logins of its own."""


class StartMode(StrEnum):
    """When a server is started."""

    AT_ONCE = "at_once"
    """With what serves it; it runs until that ends."""
    ON_CALL = "on_call"
    """With its first call, once it is approved; then it sleeps again when no client refers to it."""


class Revision(StrEnum):
    """A revision of MCP; a test holds them against the SDK's."""

    R2024_11_05 = "2024-11-05"
    R2025_03_26 = "2025-03-26"
    R2025_06_18 = "2025-06-18"
    R2025_11_25 = "2025-11-25"
    R2026_07_28 = "2026-07-28"


def _header_name(text: str) -> str:
    if not _TOKEN.fullmatch(text):
        raise ValueError("is not a valid HTTP header name")
    return text


def _header_value(text: str) -> str:
    if _LINE_ENDS.search(text):
        raise ValueError("a header's value must be one line")
    return text


def _url(text: str) -> str:
    scheme, parted, rest = text.partition("://")
    if not text:
        raise ValueError("must not be empty")
    if not parted or scheme not in {"http", "https"}:
        raise ValueError("must begin with http:// or https://, in small letters")
    if re.search(r"\s", text):
        raise ValueError("has a blank or a line end in it: write a blank as %20")
    try:
        parts = urlsplit(text)
        host = parts.hostname
        parts.port  # noqa: B018 - read to be judged
    except ValueError:
        raise ValueError("has a wrong port or address: right are http://host:8080 and http://[::1]:8080") from None
    if not host or not rest:
        raise ValueError(f"names no host after {scheme}://")
    return text


_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LINE_ENDS: Final = re.compile(r"[\r\n\0]")

_HeaderName = Annotated[str, AfterValidator(_header_name)]
_Url = Annotated[str, AfterValidator(_url), Field(json_schema_extra={"pattern": r"^https?://[^\s]+$"})]
_HeaderValue = Annotated[str, AfterValidator(_header_value)]


class RestartPolicy(FrozenModel):
    """When a dead server is restarted.

    Attributes:
        max_restarts: restarts allowed within `window_s`; one more is a crash loop.
        window_s: the width of that window, seconds.
        backoff_s: the base of the delays, doubled with each restart in a row; the first restart is made at once.
        backoff_max_s: the longest delay.
        jitter: each delay is spread by this fraction up and down.
        stable_s: after running for this long, a server's past restarts do not count.
    """

    max_restarts: int = Field(default=5, ge=0)
    window_s: float = Field(default=60.0, gt=0)
    backoff_s: float = Field(default=0.5, gt=0)
    backoff_max_s: float = Field(default=30.0, gt=0)
    jitter: float = Field(default=0.25, ge=0, lt=1)
    stable_s: float = Field(default=300.0, gt=0)


class ToolFilter(FrozenModel):
    """Which of a server's tools are offered: names that match a glob of `allow` and none of `deny`."""

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()

    def admits(self, name: str) -> bool:
        """Whether the tool of this server-side name is offered."""
        if self.allow == ("*",) and not self.deny:
            return True
        return any(fnmatchcase(name, glob) for glob in self.allow) and not any(
            fnmatchcase(name, glob) for glob in self.deny
        )


class _ServerConfig(FrozenModel):
    """What every kind of server has.

    Attributes:
        protocol: the only revision to speak with it; None for the legacy one, if the server speaks it.
        scope: who has one process of it together.
        start: when it is started; None for `on_call` if it is approved and its code is known, else for `at_once`.
        idle_stop_s: seconds without a request after which one that is started on call is stopped although clients
            are connected that called it; None to wait until they have left.
        ask: what becomes of what it asks its callers.
        required: whether what serves it counts as ready only once it can be called.
    """

    id: str
    scope: ServerScope = ServerScope.DECK
    start: StartMode | None = None
    idle_stop_s: float | None = Field(default=None, gt=0, le=86_400)
    trust: TrustMode = TrustMode.BASELINE
    ask: AskMode = AskMode.LABEL
    required: bool = False
    protocol: Revision | None = None
    restart: RestartPolicy = RestartPolicy()
    tools: ToolFilter = ToolFilter()
    connect_timeout_s: float = Field(default=CONNECT_TIMEOUT_S, gt=0, le=3600)
    list_timeout_s: float = Field(default=LIST_TIMEOUT_S, gt=0, le=3600)
    call_timeout_s: float = Field(default=CALL_TIMEOUT_S, gt=0, le=86_400)
    max_result_bytes: int = Field(default=MAX_RESULT_BYTES, ge=1024, le=1024 * 1024 * 1024)

    @field_validator("args", "auth", "env", "headers", mode="before", check_fields=False)
    @classmethod
    def _none_is_nothing(cls, value: Any, info: ValidationInfo) -> Any:
        return cls.model_fields[info.field_name or ""].default if value is None else value

    @field_validator("id")
    @classmethod
    def _legal_id(cls, value: str) -> str:
        if not is_server_id(value):
            raise ValueError(f"{value!r} is not a legal server id: 1 to 32 letters, digits, '-' or single inner '_'")
        return value


class StdioServerConfig(_ServerConfig):
    """A server that is a child process speaking over its standard streams.

    Attributes:
        command: looked up on the server's PATH unless it holds a slash.
        env: set for the server, over the allow-list.
        cwd: where it runs; its private home when absent.
        inherit_env: names of our own variables that it may see too.
        sandbox: what it may reach and use.
        seal: whether the package that its command asks a package runner for is sealed, and started without the runner.
        max_seal_bytes: how large that may be; its bounds on files and time grow with it.
    """

    kind: Literal[TransportKind.STDIO] = TransportKind.STDIO
    transport: ClassVar[TransportKind] = TransportKind.STDIO
    command: Text = Field(min_length=1)
    args: tuple[Text, ...] = ()
    env: Mapping[VariableName, Text] = Field(default={}, repr=False)
    cwd: Text | None = None
    inherit_env: tuple[VariableName, ...] = ()
    sandbox: SandboxPolicy = SandboxPolicy()
    seal: bool = True
    max_seal_bytes: ByteSize = Field(default=ByteSize(MAX_SEAL_BYTES), ge=MAX_SEAL_BYTES, le=64 * 1024**3)


class GrantType(StrEnum):
    """How we come to act at a remote server: a person logs in, or a machine shows its secret (RFC 6749 4.1, 4.4)."""

    AUTHORIZATION_CODE = "authorization_code"
    CLIENT_CREDENTIALS = "client_credentials"


def _scope(text: str) -> str:
    if not SCOPE.fullmatch(text):
        raise ValueError("a scope is one word, without quotes and backslashes")
    return text


def _secure_url(text: str) -> str:
    if not text.startswith("https://"):
        raise ValueError("must begin with https://")
    return _url(text)


class LoginConfig(FrozenModel):
    """How we log in at a remote server, where that is not all left to what the server says (OAuth 2.1).

    Attributes:
        client_id: names us to the authorization server; where it is absent we register at each login.
        client_secret: with it no person is needed, unless `grant` says otherwise.
        client_metadata_url: a document that says who we are, named in place of `client_id` where servers take it.
        grant: `authorization_code` opens a browser, `client_credentials` needs none.
        issuer: the authorization server that is used, and no other.
        scopes: what is asked for, in place of what the server names.
        redirect_port: of 127.0.0.1, to which the browser comes back; any free one when absent.
    """

    client_id: Text | None = Field(default=None, min_length=1, max_length=2048)
    client_secret: Text | None = Field(default=None, min_length=1, max_length=2048, repr=False)
    client_metadata_url: Annotated[str, AfterValidator(_secure_url)] | None = None
    grant: GrantType | None = None
    issuer: _Url | None = None
    scopes: tuple[Annotated[str, AfterValidator(_scope)], ...] = Field(default=(), max_length=MAX_SCOPES)
    redirect_port: int | None = Field(default=None, ge=1, le=65535)

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.client_secret is not None and self.client_id is None:
            raise ValueError("client_secret needs a client_id, whose secret it is")
        if self.client_metadata_url is not None and self.client_id is not None:
            raise ValueError("client_id and client_metadata_url exclude each other")
        if self.grant is GrantType.CLIENT_CREDENTIALS and self.client_secret is None:
            raise ValueError("grant 'client_credentials' needs client_id and client_secret")
        return self

    @property
    def needs_person(self) -> bool:
        """Whether a person logs in."""
        if self.grant is None:
            return self.client_secret is None
        return self.grant is GrantType.AUTHORIZATION_CODE


class _RemoteConfig(_ServerConfig):
    """A server behind a URL.

    Attributes:
        auth: how we log in there.
        proxy: the HTTP proxy that it is reached through; a password may be in it.
        ca_file: the authorities whose certificates are accepted, in place of the system's.
        client_cert: the certificate that we show.
        client_key: its key, where that is in another file.
        internet_only: whether connections go only to addresses of the internet, as for a URL from a registry.
    """

    url: _Url
    headers: Mapping[_HeaderName, _HeaderValue] = Field(default={}, repr=False)
    auth: LoginConfig = LoginConfig()
    proxy: _Url | None = Field(default=None, repr=False)
    ca_file: Text | None = Field(default=None, min_length=1)
    client_cert: Text | None = Field(default=None, min_length=1)
    client_key: Text | None = Field(default=None, min_length=1)
    internet_only: bool = False

    @model_validator(mode="after")
    def _has_a_certificate_for_its_key(self) -> Self:
        if self.client_key is not None and self.client_cert is None:
            raise ValueError("client_key needs a client_cert, whose key it is")
        return self

    @property
    def brings_credentials(self) -> bool:
        return any(name.lower() == "authorization" for name in self.headers)

    @model_validator(mode="before")
    @classmethod
    def _has_no_process(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and "sandbox" in data:
            raise ValueError("unknown key 'sandbox': a remote server has no process to confine")
        return data


class SseServerConfig(_RemoteConfig):
    """A server behind a bare URL: streamable HTTP is tried first, then legacy SSE (only that with `legacy_only`)."""

    kind: Literal[TransportKind.SSE] = TransportKind.SSE
    transport: ClassVar[TransportKind] = TransportKind.SSE
    legacy_only: bool = False


class StreamableHttpServerConfig(_RemoteConfig):
    """A server that speaks streamable HTTP; no fallback."""

    kind: Literal[TransportKind.STREAMABLE_HTTP] = TransportKind.STREAMABLE_HTTP
    transport: ClassVar[TransportKind] = TransportKind.STREAMABLE_HTTP


RemoteServerConfig = SseServerConfig | StreamableHttpServerConfig
ServerConfig = Annotated[StdioServerConfig | SseServerConfig | StreamableHttpServerConfig, Field(discriminator="kind")]


class BridgeConfig(FrozenModel):
    """The servers to connect, in the order that every snapshot keeps."""

    servers: tuple[ServerConfig, ...] = ()

    def effective(self) -> Iterator[ServerConfig]:
        """The servers without superseded ones: the last of an id wins, at the first one's position."""
        yield from {config.id: config for config in self.servers}.values()
