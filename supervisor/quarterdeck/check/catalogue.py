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
    """One check.

    Attributes:
        claim: what holds when it passes.
        remedy: what the server's author can do.
        source: the page of the specification that says so, or whoever else does; empty for common sense.
    """

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
        "It answers a greeting: initialize, or server/discover",
        "see what it says of itself on stderr, and that its command starts an MCP server",
        LIFECYCLE,
    ),
    Check("initialize-result", ERROR, "initialize is answered as the protocol says", "mend the result", LIFECYCLE),
    Check(
        "version-answered",
        ERROR,
        "A client of an unknown version is answered with one that exists, or refused",
        "answer with the latest version that you speak, never with one that you do not know",
        LIFECYCLE,
    ),
    Check("modern-era", NOTE, "It speaks 2026-07-28", "update its SDK", "2026-07-28"),
    Check("discover-result", ERROR, "server/discover is answered as 2026-07-28 says", "mend the result", "2026-07-28"),
    Check(
        "modern-version",
        WARNING,
        "A request of an unknown version is refused with -32022",
        "refuse it, and say in data.supported what you speak",
        "2026-07-28",
    ),
    Check("greeted-soon", NOTE, "It answers its greeting within ten seconds", "load what is large when it is needed"),
    # Messages
    Check(
        "clean-stdout",
        ERROR,
        "Its stdout carries MCP messages and nothing else",
        "write logs and print to stderr",
        STDIO,
    ),
    Check("message-shape", ERROR, "Its messages are JSON-RPC 2.0", "mend them as told", MESSAGES),
    Check("reply-once", ERROR, "Each request is answered once, under its own id", "keep the id as it came", MESSAGES),
    Check("notification-silent", ERROR, "A notification is not answered", "answer requests alone", MESSAGES),
    Check(
        "asks-declared",
        ERROR,
        "It asks its client for nothing that the client did not declare",
        "look at the client's capabilities before you ask",
        LIFECYCLE,
    ),
    Check("ping", ERROR, "ping is answered with an empty result", "answer it", "basic/utilities/ping"),
    Check("unknown-method", WARNING, "An unknown method is refused with -32601", "refuse it so", MESSAGES),
    # Lists
    Check("capability-kept", ERROR, "What it declares can be listed", "declare what there is", LIFECYCLE),
    Check("list-answered", NOTE, "Its lists can be taken without what is behind them", "list what needs no connection"),
    Check("capability-declared", WARNING, "What can be listed is declared", "declare it", LIFECYCLE),
    Check("list-shape", ERROR, "Its lists are as the protocol says", "mend the items as told", TOOLS),
    Check("list-pages", ERROR, "The pages of its lists end, and repeat no item", "end with no nextCursor", PAGES),
    Check("unknown-cursor", NOTE, "A cursor that it never gave is refused", "refuse it with -32602", PAGES),
    Check("list-stable", WARNING, "The same list comes twice the same", "sort it", TOOLS),
    Check("eras-agree", WARNING, "Clients of both eras see the same tools", "offer them alike"),
    # Definitions
    Check("tool-name", WARNING, "Names of tools have 1 to 128 letters, digits, '_', '-', '.'", "rename it", TOOLS),
    Check("tool-name-once", ERROR, "No two tools have one name", "rename one", TOOLS),
    Check("tool-name-providers", WARNING, "OpenAI, Anthropic and Gemini take the tools' names", "rename it"),
    Check("tool-described", WARNING, "Each tool says what it does", "describe it: models choose by that"),
    Check("schema-valid", ERROR, "Schemas are valid JSON Schema", "mend the schema as told", TOOLS),
    Check("schema-object", ERROR, "An input schema says that it is of an object", 'say "type": "object"', TOOLS),
    Check("schema-references", ERROR, "Each $ref leads to a place in its schema", "define it there", TOOLS),
    Check("schema-required", WARNING, "What is required is a property", "define the property, or drop the name"),
    Check("schema-default", WARNING, "Defaults are values that their own schema takes", "mend the default"),
    Check("schema-openai", WARNING, "OpenAI takes the input schema", "write it as told, or no model there is asked"),
    Check("schema-anthropic", WARNING, "Anthropic takes the input schema", "write it as told, or no model is asked"),
    Check("schema-gemini", NOTE, "Gemini takes the input schema as it is", "write it as told, or rely on clients"),
    Check(
        "schema-portable",
        NOTE,
        "The form that every provider takes says as much",
        "say less with references that lead back to themselves, unions and conditions",
    ),
    Check("annotations-agree", WARNING, "A tool's annotations do not contradict each other", "drop one", TOOLS),
    Check("annotations-given", NOTE, "Tools say whether they change anything", "set readOnlyHint", TOOLS),
    Check("text-suspicious", WARNING, "Nothing that a model reads tries to rule it", "say what the tool does, no more"),
    Check("definitions-size", NOTE, "The list of tools is at most 64 KiB", "offer fewer tools, say less of each"),
    # Calls
    Check("call-survived", ERROR, "It survives calls of its tools", "answer with isError in place of ending", TOOLS),
    Check("call-answered", WARNING, "A call is answered in time", "report progress, or limit how long it takes"),
    Check("call-result", ERROR, "A call's result is as the protocol says", "mend the result as told", TOOLS),
    Check("call-structured", ERROR, "structuredContent follows the tool's outputSchema", "mend one of both", TOOLS),
    Check(
        "call-judged",
        WARNING,
        "Arguments that its own schema refuses are refused",
        "answer with isError to them",
        TOOLS,
    ),
    Check("unknown-tool", WARNING, "A call of an unknown tool is an error", "refuse it with -32602", TOOLS),
    Check(
        "prompt-answered", ERROR, "A prompt that is asked for is answered", "mend the result as told", "server/prompts"
    ),
    Check("unknown-prompt", WARNING, "An unknown prompt is refused", "refuse it with -32602", "server/prompts"),
    Check("resource-read", ERROR, "A resource that is read is answered", "mend the result as told", "server/resources"),
    Check("unknown-resource", WARNING, "An unknown resource is refused", "refuse it", "server/resources"),
    Check("error-plain", WARNING, "Errors show no stack of calls", "say what was wrong with the call"),
    Check("progress", ERROR, "Progress rises, and is told of requests that asked for it", "mend it as told", PROGRESS),
    Check("cancel", WARNING, "A call that was cancelled is not answered", "stop the work, say no more", CANCELLATION),
    # Bytes
    Check("survives-garbage", ERROR, "It survives a line that is no JSON", "answer -32700, and read on", MESSAGES),
    Check("survives-odd-json", ERROR, "It survives JSON that is no request", "answer -32600, and read on", MESSAGES),
    Check("survives-bad-utf8", WARNING, "It survives bytes that are no UTF-8", "decode with replacement", STDIO),
    Check("reads-pieces", ERROR, "It reads a message that comes in pieces", "read up to the newline", STDIO),
    Check("reads-together", ERROR, "It reads two messages that come at once", "read line by line", STDIO),
    Check("reads-long-lines", WARNING, "It reads a line of a mebibyte", "read lines of any length", STDIO),
    Check("ends-with-stdin", ERROR, "It ends when its stdin is closed", "end with the end of stdin", STDIO),
    Check("ends-within-line", WARNING, "It ends so too in the middle of a line", "end with the end of stdin", STDIO),
    Check("ends-on-term", WARNING, "SIGTERM ends it", "have SIGTERM end it", STDIO),
    Check("quiet-end", NOTE, "It ends with status 0 and without a stack of calls", "catch the end of stdin"),
    # HTTP, of remote servers
    Check("http-content-type", ERROR, "Answers are JSON or a stream of events", "say so in Content-Type", STDIO),
    Check("http-accepted", ERROR, "A notification is answered with 202", "answer so, without a body", STDIO),
    Check("http-get", ERROR, "A GET opens a stream, or is answered with 405", "answer so", STDIO),
    Check("http-origin", WARNING, "A foreign Origin is refused with 403", "know your origins: DNS rebinding", STDIO),
    Check("http-version", ERROR, "An unknown MCP-Protocol-Version is refused with 400", "refuse it so", STDIO),
    Check("http-session-id", ERROR, "A session's id has visible ASCII characters alone", "make it of those", STDIO),
    Check("http-session-needed", NOTE, "A request without its session's id is refused with 400", "refuse it so", STDIO),
    Check("http-session-unknown", WARNING, "An unknown session is refused with 404", "clients begin anew then", STDIO),
    Check("http-session-ended", ERROR, "A session that was ended is refused with 404", "forget it on DELETE", STDIO),
    # What it touches and takes
    Check("read-only-kept", ERROR, "A tool that says it only reads changes no file", "drop readOnlyHint", TOOLS),
    Check("destroys-told", WARNING, "A tool that removes or overwrites says so", "drop destructiveHint", TOOLS),
    Check("closed-world-kept", WARNING, "A tool of a closed world uses no network", "drop openWorldHint", TOOLS),
    Check("network-untold", NOTE, "It uses no network before it is asked for anything", "wait until it is needed"),
    Check("files-outside", NOTE, "It looks for no files beside its own", "take the folder as an argument"),
    Check("limits-kept", WARNING, "It stays within 2 GiB of memory and 512 processes", "use less"),
    Check("idle", WARNING, "It is at rest when nobody asks anything", "wait for its stdin in place of polling"),
    Check("memory", NOTE, "It takes at most 512 MiB of memory", "load less"),
)

BY_ID: Final = {check.id: check for check in CHECKS}
