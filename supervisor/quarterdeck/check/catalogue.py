"""What is checked, as data: each check's id, what holds when it passes, how bad it is when it does not, the remedy.

An id is what users put behind `--ignore`, and what reports for programs are keyed by: it does not change.  Pure.
"""

from enum import StrEnum
from typing import Final, NamedTuple


class Severity(StrEnum):
    """How bad it is, worst first."""

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


ERROR: Final = Severity.ERROR
WARNING: Final = Severity.WARNING
NOTE: Final = Severity.NOTE

LIFECYCLE: Final = "basic/lifecycle"
STDIO: Final = "basic/transports"
MESSAGES: Final = "basic"
TOOLS: Final = "server/tools"
PAGES: Final = "server/utilities/pagination"
PROGRESS: Final = "basic/utilities/progress"
CANCELLATION: Final = "basic/utilities/cancellation"

CHECKS: Final = (
    # The greeting
    Check(
        "greeting",
        ERROR,
        "The server answers initialize or server/discover",
        "read its stderr, and check that the command starts an MCP server",
        LIFECYCLE,
    ),
    Check("initialize-result", ERROR, "The result of initialize is valid", "correct the result", LIFECYCLE),
    Check(
        "version-answered",
        ERROR,
        "initialize with an unknown version gets a known version, or an error",
        "answer with the latest version that you support",
        LIFECYCLE,
    ),
    Check("modern-era", NOTE, "The server supports 2026-07-28", "update its SDK", "2026-07-28"),
    Check("discover-result", ERROR, "The result of server/discover is valid", "correct the result", "2026-07-28"),
    Check(
        "modern-version",
        WARNING,
        "A request with an unknown version is refused with -32022",
        "refuse it, and list the supported versions in data.supported",
        "2026-07-28",
    ),
    Check(
        "greeted-soon",
        NOTE,
        "The server answers initialize within ten seconds",
        "load large modules when they are needed",
    ),
    # Messages
    Check("clean-stdout", ERROR, "stdout has MCP messages and nothing else", "write logs and print to stderr", STDIO),
    Check("message-shape", ERROR, "Messages are JSON-RPC 2.0", "correct the fields named above", MESSAGES),
    Check(
        "reply-once",
        ERROR,
        "Each request is answered once, under its own id",
        "answer once, with the id of the request",
        MESSAGES,
    ),
    Check("notification-silent", ERROR, "A notification is not answered", "answer requests only", MESSAGES),
    Check(
        "asks-declared",
        ERROR,
        "The server sends no request for a capability that the client did not declare",
        "check the client's capabilities before sending a request",
        LIFECYCLE,
    ),
    Check("ping", ERROR, "ping is answered with an empty result", "answer it with {}", "basic/utilities/ping"),
    Check("unknown-method", WARNING, "An unknown method is refused with -32601", "refuse it with -32601", MESSAGES),
    # Lists
    Check(
        "capability-kept", ERROR, "Each declared capability can be listed", "declare only what can be listed", LIFECYCLE
    ),
    Check(
        "list-answered",
        NOTE,
        "Lists are answered without the service behind the server",
        "list without connecting to the service",
    ),
    Check(
        "capability-declared",
        WARNING,
        "Each list that is answered is a declared capability",
        "declare the capability",
        LIFECYCLE,
    ),
    Check("list-shape", ERROR, "Lists are valid", "correct the items named above", TOOLS),
    Check(
        "list-pages",
        ERROR,
        "The pages of a list end, and repeat no item",
        "leave out nextCursor on the last page",
        PAGES,
    ),
    Check("unknown-cursor", NOTE, "An unknown cursor is refused", "refuse it with -32602", PAGES),
    Check("list-stable", WARNING, "A list that is asked for twice is the same", "sort the list", TOOLS),
    Check("eras-agree", WARNING, "Clients of both eras see the same tools", "list the same tools in both eras"),
    # Definitions
    Check("tool-name", WARNING, "A tool's name has 1 to 128 letters, digits, '_', '-', '.'", "rename it", TOOLS),
    Check("tool-name-once", ERROR, "No two tools have the same name", "rename one", TOOLS),
    Check("tool-name-providers", WARNING, "OpenAI, Anthropic and Gemini accept the tools' names", "rename it"),
    Check(
        "tool-described",
        WARNING,
        "Each tool has a description",
        "describe it: models choose tools by their descriptions",
    ),
    Check("schema-valid", ERROR, "Schemas are valid JSON Schema", "correct the schema as described above", TOOLS),
    Check("schema-object", ERROR, "An input schema has the type object", 'add "type": "object"', TOOLS),
    Check("schema-references", ERROR, "Each $ref leads to a definition in its schema", "add the definition", TOOLS),
    Check("schema-required", WARNING, "Each required name is a property", "define the property, or remove the name"),
    Check("schema-default", WARNING, "Each default is valid against its schema", "correct the default"),
    Check(
        "schema-openai",
        WARNING,
        "OpenAI accepts the input schema",
        "change it as described above: OpenAI refuses the request",
    ),
    Check(
        "schema-anthropic",
        WARNING,
        "Anthropic accepts the input schema",
        "change it as described above: Anthropic refuses the request",
    ),
    Check(
        "schema-gemini",
        NOTE,
        "Gemini accepts the input schema unchanged",
        "change it as described above; some clients convert it",
    ),
    Check(
        "schema-portable",
        NOTE,
        "No property is lost when the schema is simplified for every provider",
        "use fewer recursive references, unions and conditions",
    ),
    Check("annotations-agree", WARNING, "A tool's annotations do not contradict each other", "remove one", TOOLS),
    Check(
        "annotations-given",
        NOTE,
        "Tools have annotations that say whether they change anything",
        "set readOnlyHint",
        TOOLS,
    ),
    Check(
        "text-suspicious",
        WARNING,
        "Texts that a model reads have no hidden characters and no orders to it",
        "say only what the tool does",
    ),
    Check(
        "definitions-size",
        NOTE,
        "The list of tools is at most 64 KiB",
        "offer fewer tools, or shorten the descriptions",
    ),
    # Calls
    Check(
        "call-survived",
        ERROR,
        "The server goes on running when its tools are called",
        "answer with isError instead of ending",
        TOOLS,
    ),
    Check("call-answered", WARNING, "A call is answered in time", "report progress, or limit how long it takes"),
    Check("call-result", ERROR, "The result of a call is valid", "correct the result as described above", TOOLS),
    Check(
        "call-structured",
        ERROR,
        "structuredContent is valid against the tool's outputSchema",
        "correct one of the two",
        TOOLS,
    ),
    Check(
        "call-judged",
        WARNING,
        "Arguments that are invalid against the tool's schema are refused",
        "answer with isError",
        TOOLS,
    ),
    Check("unknown-tool", WARNING, "A call of an unknown tool is an error", "refuse it with -32602", TOOLS),
    Check(
        "prompt-answered",
        ERROR,
        "A listed prompt can be got",
        "correct the result as described above",
        "server/prompts",
    ),
    Check("unknown-prompt", WARNING, "An unknown prompt is refused", "refuse it with -32602", "server/prompts"),
    Check(
        "resource-read",
        ERROR,
        "A listed resource can be read",
        "correct the result as described above",
        "server/resources",
    ),
    Check("unknown-resource", WARNING, "An unknown resource is refused", "refuse it", "server/resources"),
    Check("error-plain", WARNING, "Errors have no stack trace", "say what is wrong with the call"),
    Check(
        "progress",
        ERROR,
        "Progress rises, and is sent only for requests that asked for it",
        "correct the notifications named above",
        PROGRESS,
    ),
    Check("cancel", WARNING, "A cancelled call is not answered", "stop the work and send no answer", CANCELLATION),
    # Bytes
    Check(
        "survives-garbage",
        ERROR,
        "The server goes on running after a line that is no JSON",
        "answer -32700, and read on",
        MESSAGES,
    ),
    Check(
        "survives-odd-json",
        ERROR,
        "The server goes on running after JSON that is no request",
        "answer -32600, and read on",
        MESSAGES,
    ),
    Check(
        "survives-bad-utf8",
        WARNING,
        "The server goes on running after bytes that are no UTF-8",
        "decode with replacement",
        STDIO,
    ),
    Check("reads-pieces", ERROR, "A message that arrives in pieces is read", "read up to the newline", STDIO),
    Check("reads-together", ERROR, "Two messages that arrive at once are both read", "read line by line", STDIO),
    Check("reads-long-lines", WARNING, "A line of 1 MiB is read", "read lines of any length", STDIO),
    Check("ends-with-stdin", ERROR, "The server ends when stdin is closed", "end at the end of stdin", STDIO),
    Check(
        "ends-within-line",
        WARNING,
        "The server ends when stdin is closed in the middle of a line",
        "end at the end of stdin",
        STDIO,
    ),
    Check("ends-on-term", WARNING, "The server ends on SIGTERM", "do not ignore SIGTERM", STDIO),
    Check("quiet-end", NOTE, "The server ends with status 0 and without a stack trace", "handle the end of stdin"),
    # HTTP, of remote servers
    Check(
        "http-content-type", ERROR, "The Content-Type of answers is JSON or an event stream", "set Content-Type", STDIO
    ),
    Check("http-accepted", ERROR, "A notification is answered with 202", "answer 202 without a body", STDIO),
    Check(
        "http-get", ERROR, "A GET opens a stream, or is answered with 405", "answer 405 if there is no stream", STDIO
    ),
    Check("http-origin", WARNING, "A foreign Origin is refused with 403", "check Origin, against DNS rebinding", STDIO),
    Check("http-version", ERROR, "An unknown MCP-Protocol-Version is refused with 400", "refuse it with 400", STDIO),
    Check("http-session-id", ERROR, "A session's id has only visible ASCII characters", "use only those", STDIO),
    Check(
        "http-session-needed",
        NOTE,
        "A request without its session's id is refused with 400",
        "refuse it with 400",
        STDIO,
    ),
    Check(
        "http-session-unknown",
        WARNING,
        "An unknown session is refused with 404",
        "answer 404: clients then open a new session",
        STDIO,
    ),
    Check("http-session-ended", ERROR, "A deleted session is refused with 404", "forget it on DELETE", STDIO),
    # What it touches and takes
    Check("read-only-kept", ERROR, "A tool with readOnlyHint changes no file", "remove readOnlyHint", TOOLS),
    Check(
        "destroys-told",
        WARNING,
        "A tool with destructiveHint false removes and overwrites nothing",
        "remove destructiveHint: false",
        TOOLS,
    ),
    Check(
        "closed-world-kept",
        WARNING,
        "A tool with openWorldHint false uses no network",
        "remove openWorldHint: false",
        TOOLS,
    ),
    Check(
        "network-untold", NOTE, "The server uses no network before the first request", "connect when a request needs it"
    ),
    Check(
        "files-outside", NOTE, "The server looks for no files outside its own folders", "take the folder as an argument"
    ),
    Check(
        "limits-kept",
        WARNING,
        "The server uses at most 2 GiB of memory and 512 processes",
        "use less memory or fewer processes",
    ),
    Check("idle", WARNING, "The server uses almost no CPU when idle", "wait for stdin instead of polling"),
    Check("memory", NOTE, "The server uses at most 512 MiB of memory", "load less into memory"),
)

BY_ID: Final = {check.id: check for check in CHECKS}
