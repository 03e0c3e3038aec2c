"""What a client may send: methods by era, the shapes of their parameters, and what servers of this kind can do.

A test compares these tables with the types of the installed SDK.
"""

from enum import Flag, auto
from typing import Final, Literal

import msgspec
from msgspec import Raw

from quarterdeck_protocol.mcp.jsonrpc import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR
from quarterdeck_protocol.mcp.tasks import LIST, METHODS

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The revisions of the legacy era, which begins with `initialize`; oldest first."""

MODERN_VERSION: Final = "2026-07-28"
"""The revision of the modern era, whose requests stand alone."""

DEFAULT_VERSION: Final = "2025-03-26"
"""The revision of a legacy request over HTTP that names none (2025-11-25, basic/transports)."""

HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022
URL_ELICITATION_REQUIRED: Final = -32042
"""MCP's own error codes."""

HTTP_STATUS: Final = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
"""The status of a response of 2026-07-28 that is an error of this code; 200 for others."""

REQUEST_CANCELLED: Final = -32800
"""The answer to a cancelled request of the legacy era over HTTP, where a stream ends with an answer alone."""

EVERYTHING: Final = (
    b'{"completions":{},"logging":{},"prompts":{"listChanged":true},'
    b'"resources":{"listChanged":true,"subscribe":true},"tools":{"listChanged":true}}'
)
"""Our capabilities, whatever the servers of the moment have: others may come while a client is there."""

TOOLS_ONLY: Final = {True: b'{"tools":{"listChanged":true}}', False: b'{"tools":{"listChanged":false}}'}
"""Our capabilities where only tools are shown, by whether these may change."""


class Era(Flag):
    """The eras that have a method."""

    LEGACY = auto()
    MODERN = auto()


BOTH: Final = Era.LEGACY | Era.MODERN

Text = dict[str, str]
Object = dict[str, Raw]


class _Params(msgspec.Struct, gc=False):
    """Parameters of which nothing is read but `_meta`."""


class _Call(_Params, gc=False):
    """`requests` looks at its members one by one."""


class _Prompt(_Params, gc=False):
    name: str
    arguments: Text | None = None


class _Uri(_Params, gc=False):
    uri: str


class _Page(_Params, gc=False):
    cursor: str | None = None


class _Level(_Params, gc=False):
    level: Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class _Reference(msgspec.Struct, gc=False, tag_field="type", tag="ref/prompt"):
    name: str


class _ResourceReference(msgspec.Struct, gc=False, tag_field="type", tag="ref/resource"):
    uri: str


class _Argument(msgspec.Struct, gc=False):
    name: str
    value: str


class _Completed(msgspec.Struct, gc=False):
    arguments: Text | None = None


class _Completion(_Params, gc=False):
    ref: _Reference | _ResourceReference
    argument: _Argument
    context: _Completed | None = None


class Wanted(msgspec.Struct, gc=False, rename="camel"):
    """The changes that a stream of 2026-07-28 is to be told of."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] | None = None
    task_ids: Raw = Raw()


class Listen(_Params, gc=False):
    """Parameters of `subscriptions/listen`."""

    notifications: Wanted


class _Elicitation(msgspec.Struct, gc=False):
    form: Object | None = None
    url: Object | None = None


class Abilities(msgspec.Struct, gc=False):
    """The capabilities of a client whose shape is known; others pass."""

    elicitation: _Elicitation | None = None
    sampling: Object | None = None
    roots: Object | None = None
    experimental: dict[str, Object] | None = None
    extensions: dict[str, Object] | None = None


class Introduction(msgspec.Struct, gc=False):
    """A client's description of itself."""

    name: str
    version: str
    title: str | None = None


class Initialize(_Params, gc=False, rename="camel"):
    """Parameters of `initialize`."""

    protocol_version: str
    capabilities: Abilities
    client_info: Introduction


METHODS_OF: Final[dict[str, tuple[Era, type[_Params]]]] = {
    "initialize": (Era.LEGACY, Initialize),
    "ping": (Era.LEGACY, _Params),
    "server/discover": (Era.MODERN, _Params),
    "tools/list": (BOTH, _Page),
    "tools/call": (BOTH, _Call),
    "prompts/list": (BOTH, _Page),
    "prompts/get": (BOTH, _Prompt),
    "resources/list": (BOTH, _Page),
    "resources/templates/list": (BOTH, _Page),
    "resources/read": (BOTH, _Uri),
    "resources/subscribe": (Era.LEGACY, _Uri),
    "resources/unsubscribe": (Era.LEGACY, _Uri),
    "completion/complete": (BOTH, _Completion),
    "logging/setLevel": (Era.LEGACY, _Level),
    "subscriptions/listen": (Era.MODERN, Listen),
    LIST: (Era.LEGACY, _Page),
    **dict.fromkeys(METHODS[False], (Era.LEGACY, _Params)),
    **dict.fromkeys(METHODS[True], (Era.MODERN, _Params)),
    **dict.fromkeys(METHODS[False] & METHODS[True], (BOTH, _Params)),
}
"""Each method with the eras that have it and the shape of its parameters."""

IN_ERA: Final = {
    is_modern: frozenset(name for name, (eras, _) in METHODS_OF.items() if eras & era)
    for is_modern, era in ((False, Era.LEGACY), (True, Era.MODERN))
}
"""The methods of each era; a set, because every request is looked up."""

TOOL_METHODS: Final = frozenset(
    {"initialize", "ping", "server/discover", "tools/list", "tools/call", "subscriptions/listen"}
)
"""The methods that there are where only tools are shown."""

NOTIFICATIONS: Final = {
    "notifications/cancelled": BOTH,
    "notifications/initialized": Era.LEGACY,
    "notifications/progress": Era.LEGACY,
    "notifications/roots/list_changed": Era.LEGACY,
}
"""The notifications of clients."""

NAMED_BY: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter that the header `Mcp-Name` repeats over HTTP (2026-07-28, basic/transports)."""

DECODERS: Final = {name: msgspec.json.Decoder(shape) for name, (_, shape) in METHODS_OF.items()}
