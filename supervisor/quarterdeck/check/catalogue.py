"""The checks as data: id, severity, claim and remedy.

An id is what users put behind `--ignore`, and what reports for programs are keyed by: it does not change.  Pure.
"""

from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple


class Severity(StrEnum):
    """Severities, worst first."""

    ERROR = "error"
    """It breaks the protocol, loses work, or does what it says it does not do."""

    WARNING = "warning"
    """Some clients or models fail on it, or the protocol advises against it."""

    NOTE = "note"
    """Worth knowing."""


RANKS: Final = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


class Check(NamedTuple):
    """One check: the `claim` that it holds against the server, the `remedy` for its author, the source of the rule."""

    id: str
    severity: Severity
    claim: str
    remedy: str
    source: str = ""


_SAID_BY: Final = {
    "basic/lifecycle": "greeting initialize-result version-answered asks-declared capability-kept capability-declared",
    "2026-07-28": "modern-era discover-result modern-version",
    "basic/transports": (
        "clean-stdout survives-bad-utf8 reads-pieces reads-together reads-long-lines ends-with-stdin "
        "ends-within-line ends-on-term http-content-type http-accepted http-get http-origin http-version "
        "http-session-id http-session-needed http-session-unknown http-session-ended"
    ),
    "basic": "message-shape reply-once notification-silent unknown-method survives-garbage survives-odd-json",
    "basic/utilities/ping": "ping",
    "server/tools": (
        "list-shape list-stable tool-name tool-name-once schema-valid schema-object schema-references "
        "annotations-agree annotations-given call-survived call-result call-structured call-judged unknown-tool "
        "read-only-kept destroys-told closed-world-kept"
    ),
    "server/utilities/pagination": "list-pages unknown-cursor",
    "server/prompts": "prompt-answered unknown-prompt",
    "server/resources": "resource-read unknown-resource",
    "basic/utilities/progress": "progress",
    "basic/utilities/cancellation": "cancel",
}
"""The pages of the specification, and the checks that they ask for; the others are common sense."""

_PAGES: Final = {check: page for page, checks in _SAID_BY.items() for check in checks.split()}


def _check(severity: Severity, id_: str, claim: str, remedy: str) -> Check:
    return Check(id_, severity, claim, remedy, _PAGES.get(id_, ""))


_error: Final = partial(_check, Severity.ERROR)
_warning: Final = partial(_check, Severity.WARNING)
_note: Final = partial(_check, Severity.NOTE)

CHECKS: Final = (
    # The greeting
    _error(
        "greeting",
        "The server answers initialize or server/discover",
        "read its stderr, and check that the command starts an MCP server",
    ),
    _error("initialize-result", "The result of initialize is valid", "correct the result"),
    _error(
        "version-answered",
        "initialize with an unknown version gets a known version, or an error",
        "answer with the latest version that you support",
    ),
    _note("modern-era", "The server supports 2026-07-28", "update its SDK"),
    _error("discover-result", "The result of server/discover is valid", "correct the result"),
    _warning(
        "modern-version",
        "A request with an unknown version is refused with -32022",
        "refuse it, and list the supported versions in data.supported",
    ),
    _note(
        "greeted-soon", "The server answers initialize within ten seconds", "load large modules when they are needed"
    ),
    # Messages
    _error("clean-stdout", "stdout has MCP messages and nothing else", "write logs and print to stderr"),
    _error("message-shape", "Messages are JSON-RPC 2.0", "correct the fields named above"),
    _error("reply-once", "Each request is answered once, under its own id", "answer once, with the id of the request"),
    _error("notification-silent", "A notification is not answered", "answer requests only"),
    _error(
        "asks-declared",
        "The server sends no request for a capability that the client did not declare",
        "check the client's capabilities before sending a request",
    ),
    _error("ping", "ping is answered with an empty result", "answer it with {}"),
    _warning("unknown-method", "An unknown method is refused with -32601", "refuse it with -32601"),
    # Lists
    _error("capability-kept", "Each declared capability can be listed", "declare only what can be listed"),
    _note(
        "list-answered",
        "Lists are answered without the service behind the server",
        "list without connecting to the service",
    ),
    _warning("capability-declared", "Each list that is answered is a declared capability", "declare the capability"),
    _error("list-shape", "Lists are valid", "correct the items named above"),
    _error("list-pages", "The pages of a list end, and repeat no item", "leave out nextCursor on the last page"),
    _note("unknown-cursor", "An unknown cursor is refused", "refuse it with -32602"),
    _warning("list-stable", "A list that is asked for twice is the same", "sort the list"),
    _warning("eras-agree", "Clients of both eras see the same tools", "list the same tools in both eras"),
    # Definitions
    _warning("tool-name", "A tool's name has 1 to 128 letters, digits, '_', '-', '.'", "rename it"),
    _error("tool-name-once", "No two tools have the same name", "rename one"),
    _warning("tool-name-providers", "OpenAI, Anthropic and Gemini accept the tools' names", "rename it"),
    _warning("tool-described", "Each tool has a description", "describe it: models choose tools by their descriptions"),
    _error("schema-valid", "Schemas are valid JSON Schema", "correct the schema as described above"),
    _error("schema-object", "An input schema has the type object", 'add "type": "object"'),
    _error("schema-references", "Each $ref leads to a definition in its schema", "add the definition"),
    _warning("schema-required", "Each required name is a property", "define the property, or remove the name"),
    _warning("schema-default", "Each default is valid against its schema", "correct the default"),
    _warning(
        "schema-openai", "OpenAI accepts the input schema", "change it as described above: OpenAI refuses the request"
    ),
    _warning(
        "schema-anthropic",
        "Anthropic accepts the input schema",
        "change it as described above: Anthropic refuses the request",
    ),
    _note(
        "schema-gemini",
        "Gemini accepts the input schema unchanged",
        "change it as described above; some clients convert it",
    ),
    _note(
        "schema-portable",
        "No property is lost when the schema is simplified for every provider",
        "use fewer recursive references, unions and conditions",
    ),
    _warning("annotations-agree", "A tool's annotations do not contradict each other", "remove one"),
    _note("annotations-given", "Tools have annotations that say whether they change anything", "set readOnlyHint"),
    _warning(
        "text-suspicious",
        "Texts that a model reads have no hidden characters and no orders to it",
        "say only what the tool does",
    ),
    _note("definitions-size", "The list of tools is at most 64 KiB", "offer fewer tools, or shorten the descriptions"),
    # Calls
    _error(
        "call-survived", "The server goes on running when its tools are called", "answer with isError instead of ending"
    ),
    _warning("call-answered", "A call is answered in time", "report progress, or limit how long it takes"),
    _error("call-result", "The result of a call is valid", "correct the result as described above"),
    _error("call-structured", "structuredContent is valid against the tool's outputSchema", "correct one of the two"),
    _warning("call-judged", "Arguments that are invalid against the tool's schema are refused", "answer with isError"),
    _warning("unknown-tool", "A call of an unknown tool is an error", "refuse it with -32602"),
    _error("prompt-answered", "A listed prompt can be got", "correct the result as described above"),
    _warning("unknown-prompt", "An unknown prompt is refused", "refuse it with -32602"),
    _error("resource-read", "A listed resource can be read", "correct the result as described above"),
    _warning("unknown-resource", "An unknown resource is refused", "refuse it"),
    _warning("error-plain", "Errors have no stack trace", "say what is wrong with the call"),
    _error(
        "progress",
        "Progress rises, and is sent only for requests that asked for it",
        "correct the notifications named above",
    ),
    _warning("cancel", "A cancelled call is not answered", "stop the work and send no answer"),
    # Bytes
    _error("survives-garbage", "The server goes on running after a line that is no JSON", "answer -32700, and read on"),
    _error(
        "survives-odd-json", "The server goes on running after JSON that is no request", "answer -32600, and read on"
    ),
    _warning(
        "survives-bad-utf8", "The server goes on running after bytes that are no UTF-8", "decode with replacement"
    ),
    _error("reads-pieces", "A message that arrives in pieces is read", "read up to the newline"),
    _error("reads-together", "Two messages that arrive at once are both read", "read line by line"),
    _warning("reads-long-lines", "A line of 1 MiB is read", "read lines of any length"),
    _error("ends-with-stdin", "The server ends when stdin is closed", "end at the end of stdin"),
    _warning(
        "ends-within-line", "The server ends when stdin is closed in the middle of a line", "end at the end of stdin"
    ),
    _warning("ends-on-term", "The server ends on SIGTERM", "do not ignore SIGTERM"),
    _note("quiet-end", "The server ends with status 0 and without a stack trace", "handle the end of stdin"),
    # HTTP, of remote servers
    _error("http-content-type", "The Content-Type of answers is JSON or an event stream", "set Content-Type"),
    _error("http-accepted", "A notification is answered with 202", "answer 202 without a body"),
    _error("http-get", "A GET opens a stream, or is answered with 405", "answer 405 if there is no stream"),
    _warning("http-origin", "A foreign Origin is refused with 403", "check Origin, against DNS rebinding"),
    _error("http-version", "An unknown MCP-Protocol-Version is refused with 400", "refuse it with 400"),
    _error("http-session-id", "A session's id has only visible ASCII characters", "use only those"),
    _note("http-session-needed", "A request without its session's id is refused with 400", "refuse it with 400"),
    _warning(
        "http-session-unknown", "An unknown session is refused with 404", "answer 404: clients then open a new session"
    ),
    _error("http-session-ended", "A deleted session is refused with 404", "forget it on DELETE"),
    # What it touches and takes
    _error(
        "decoys-kept",
        "The server sends no key, and no document except in a tool's result",
        "send only what the tool is for, and never a secret",
    ),
    _warning(
        "secrets-unopened",
        "The server opens no file with a key, password or token",
        "take the secret from an environment variable, or from its own agent",
    ),
    _error("read-only-kept", "A tool with readOnlyHint changes no file", "remove readOnlyHint"),
    _warning(
        "destroys-told",
        "A tool with destructiveHint false removes and overwrites nothing",
        "remove destructiveHint: false",
    ),
    _warning("closed-world-kept", "A tool with openWorldHint false uses no network", "remove openWorldHint: false"),
    _note("network-untold", "The server uses no network before the first request", "connect when a request needs it"),
    _note("files-outside", "The server looks for no files outside its own folders", "take the folder as an argument"),
    _warning(
        "limits-kept", "The server uses at most 2 GiB of memory and 512 processes", "use less memory or fewer processes"
    ),
    _warning("idle", "The server uses almost no CPU when idle", "wait for stdin instead of polling"),
    _note("memory", "The server uses at most 512 MiB of memory", "load less into memory"),
)

BY_ID: Final = {check.id: check for check in CHECKS}
