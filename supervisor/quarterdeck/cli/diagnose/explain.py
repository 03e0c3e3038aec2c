"""`quarterdeck explain`: the page of each code that an error is printed with."""

from typing import Annotated, Final

from quarterdeck.cli import options
from quarterdeck.cli.exits import MEANINGS, CommandError, ExitCode
from quarterdeck.cli.output import Cell, print_json, print_line, print_table
from quarterdeck.cli.parameters import Argument
from quarterdeck_protocol.faults import REMEDIES
from quarterdeck_protocol.names import did_you_mean

EXPLANATIONS: Final = {
    "auth_needed": (
        "The remote server answered 401 or 403: it requires login. Nobody is logged in for you: the row names a token.",
        'quarterdeck secret set TOKEN; "headers": {"Authorization": "Bearer ${keyring:TOKEN}"}',
    ),
    "bad_arguments": (
        "The arguments of the call are not a JSON object.",
        """quarterdeck call notes__save '{"text": "hello"}'""",
    ),
    "bad_cwd": (
        "The row's working directory is missing, is not a directory, or may not be entered.",
        '"cwd": "/home/me/project"',
    ),
    "bad_output": (
        "The server wrote a line on stdout that is not an MCP message, or one that is too long or too deep.",
        "A server that prints its banner on stdout in place of stderr: quarterdeck logs SERVER shows it.",
    ),
    "bad_result": (
        "The server answered the call with something that is not a tool result.",
        'An answer without "content", or with text that is not a string.',
    ),
    "busy": (
        "More calls of this server wait than its worker may hold, or it does not read what it is sent.",
        "A program that starts thousands of calls at once: let it wait for the first ones.",
    ),
    "call_timeout": (
        "The server did not answer within call_timeout_s (300 seconds unless the row says otherwise).",
        '"call_timeout_s": 900',
    ),
    "cancelled": (
        "The client cancelled the call, or its connection ended.",
        "Ctrl-C in the client while a tool runs.",
    ),
    "closed": (
        "The server was stopped before the call was made, or while it ran.",
        "A call after the end of `async with Quarterdeck(…)`, or a row that was taken out of its file.",
    ),
    "command_not_found": (
        "There is no program of this name on the server's PATH.",
        '"command": "/home/me/.local/bin/uvx" in place of "command": "uvx"',
    ),
    "config_invalid": (
        "A row of the configuration says something that cannot be used.",
        "quarterdeck config check says what, with file, place and the nearest right key.",
    ),
    "connect_failed": (
        "The remote server's URL cannot be reached: its name has no address, the connection is refused, TLS fails.",
        "curl -i URL, from this machine",
    ),
    "crash_loop": (
        "The server crashed too often within a minute, and is not restarted.",
        "quarterdeck logs notes; quarterdeck restart notes",
    ),
    "directory_unusable": (
        "The server's private directory cannot be made or written: the disk is full or read-only, or it is another's.",
        "df -h ~/.local/state; df -i ~/.local/state",
    ),
    "exited": (
        "The server's process ended after it was ready.",
        "The lines below the error say how: exit status or signal, the end of its stderr, memory, time.",
    ),
    "exited_at_handshake": (
        "The server's process ended before it answered its first message.",
        "A module that is missing, an argument that it does not know, a file that its sandbox does not show.",
    ),
    "handshake_failed": (
        "The server answered the first message with an error, or with a protocol revision that is not supported.",
        'A server of another revision: "protocol": "2025-11-25" in its row.',
    ),
    "handshake_timeout": (
        "The server did not answer its first message within connect_timeout_s (60 seconds unless the row says so).",
        '"connect_timeout_s": 180, for a package that is downloaded first',
    ),
    "input_required": (
        "The server asked its user a question in the middle of the call, which is not supported here.",
        "A tool that asks which account is meant: name it in the arguments.",
    ),
    "launch_blocked": (
        "Somebody ran `quarterdeck trust block SERVER --all`.",
        "quarterdeck trust approve notes --all",
    ),
    "launch_held": (
        "How the server is started is new or changed, and waits for your approval.",
        "quarterdeck trust diff notes; quarterdeck trust approve notes --all",
    ),
    "limit_hit": (
        "The server used more than its sandbox gives: memory, processes, files, output, time.",
        '"sandbox": {"limits": {"memory_bytes": "2 GiB"}}',
    ),
    "list_timeout": (
        "The server did not list its tools within list_timeout_s (30 seconds unless the row says otherwise).",
        '"list_timeout_s": 90',
    ),
    "network_failed": (
        "The private network of the server's sandbox could not be made.",
        "quarterdeck doctor; on Debian: apt install slirp4netns",
    ),
    "network_lost": (
        "The sandbox's network helper (slirp4netns or pasta) ended or hangs; the server had no network.",
        "Somebody killed slirp4netns: the server is started again with a new one.",
    ),
    "not_connected": (
        "The server is not ready: it still connects, it failed, or it was stopped.",
        "quarterdeck ps shows its phase and its fault.",
    ),
    "not_executable": (
        "The command is a file that may not be executed.",
        'chmod +x server.py, or "command": "python3", "args": ["server.py"]',
    ),
    "not_mcp": (
        "The program runs, and what it answers shows that it is no MCP server.",
        '"command": "cat"; or a program that needs an argument before it speaks MCP, such as --stdio or mcp.',
    ),
    "protocol_violation": (
        "The worker process that drives the server broke the protocol between worker and supervisor, and was killed.",
        "No configuration of yours does that: it is a bug in quarterdeck, or a compromised worker.",
    ),
    "reply_error": (
        "The server answered the call with a JSON-RPC error, not with a result.",
        "A parameter that is missing, or of another type than its schema says.",
    ),
    "result_too_large": (
        "The result has more bytes than max_result_bytes (64 MiB unless the row says otherwise).",
        '"max_result_bytes": "256 MiB"',
    ),
    "sandbox_refused": (
        "The row asks for something that the sandbox cannot give on this machine, or not safely.",
        '"network": ["api.example.com:443"] where bubblewrap is not installed',
    ),
    "server_lost": (
        "The connection to the server ended: its process died, or a remote one hung up.",
        "quarterdeck logs notes; quarterdeck inspect notes shows its last death.",
    ),
    "shutting_down": (
        "Quarterdeck is shutting down, and the call could not finish in time.",
        "quarterdeck serve was stopped (SIGTERM) while the tool ran: call again when it is back.",
    ),
    "spawn_failed": (
        "The operating system would not start the process.",
        "No memory, no process ids left, or a program for another processor.",
    ),
    "too_many_pages": (
        "The server's list of tools has too many pages, or does not end.",
        "A server whose next cursor is always the same.",
    ),
    "too_many_tools": (
        "The server lists more tools than any client could use.",
        "A server that creates a tool for every row of a database.",
    ),
    "tool_blocked": (
        "Somebody ran `quarterdeck trust block SERVER TOOL`.",
        "quarterdeck trust approve notes save_note",
    ),
    "tool_held": (
        "The tool is new or changed since it was approved, or its server's instructions are, and it waits for you.",
        "quarterdeck trust diff notes; quarterdeck trust approve notes save_note",
    ),
    "unknown_tool": (
        "No server and no native tool has this name.",
        "Servers' tools are called server__tool: quarterdeck call notes__save_note",
    ),
    "unset_variable": (
        "The row names a variable of the environment that is not set.",
        '"env": {"TZ": "${TZ:-UTC}"}',
    ),
    "worker_lost": (
        "The worker process that drives the server ended, or could not be started.",
        "Somebody killed it, or this machine ran out of memory.",
    ),
    "worker_unresponsive": (
        "The worker process that drives the server did not answer for too long, and was killed.",
        "It was stopped with SIGSTOP, or this machine was suspended.",
    ),
}
"""Of each code of a fault: its cause, and an example.  What to do is in `REMEDIES`."""


ENDINGS: Final = {
    ExitCode.USAGE: (
        "A word, a value or a file that was given cannot be used; nothing was done.",
        "the line `fix:` below the error says it; quarterdeck help COMMAND, quarterdeck config check",
        "quarterdeck ps --jsno",
    ),
    ExitCode.NOT_FOUND: (
        "What was named is not there: a server, a tool, a file, or a record of it.",
        "look at what there is: quarterdeck tools, ps, trust list --all, secret list, checkpoint list",
        "quarterdeck call notes__svae, for notes__save",
    ),
    ExitCode.NOT_READY: (
        "The server still connects, or could not be started.",
        "quarterdeck ps says why; quarterdeck restart SERVER tries again",
        "quarterdeck call notes__save, while notes is faulted",
    ),
    ExitCode.FAULT: (
        "The call was made, and no result came: it was refused, or its server was lost, or it took too long.",
        "the error has a code of its own: quarterdeck explain has its page",
        "quarterdeck call notes__save, and the server crashes meanwhile",
    ),
    ExitCode.NO_ANSWER: (
        "A running serve does not answer, or is of another version; or nothing can listen where it was to serve.",
        "see its log; stop it, and start it again; or start the servers for one command alone: --own",
        "quarterdeck serve --http 8808, where another program listens",
    ),
    ExitCode.DRIFTED: (
        "A server offers something that deck.lock does not have, or no more what it has.",
        "quarterdeck lock --check shows it; quarterdeck lock writes the file anew, once you have looked at it",
        "quarterdeck lock --check, after an update of a server",
    ),
    ExitCode.BROKEN: (
        "An event of the ledger was changed or removed by something else than quarterdeck.",
        "see quarterdeck ledger verify, then restore its directory from a backup",
        "quarterdeck ledger verify, after somebody edited the database",
    ),
    ExitCode.INTERNAL: (
        "Something happened that quarterdeck does not expect.",
        "please report it, with what --log-level debug shows",
        "quarterdeck tools --log-level debug",
    ),
    ExitCode.UNWRITTEN: (
        "The place that the output goes to takes no more.",
        "make room there, or redirect the output",
        "quarterdeck tools > /dev/full",
    ),
}
"""Of each exit code that an error is printed with: cause, what to do, and an example; `MEANINGS` has the meaning."""


def explain(
    code: Annotated[str | None, Argument(metavar="CODE", help="The code in error[…].", show_default=False)] = None,
    json: options.Json = False,
) -> None:
    """Explain an error's code: cause, remedy, example.  Without one, list them all."""
    codes = {each.name.lower(): (meaning, int(each)) for each, meaning in MEANINGS.items() if each in ENDINGS}
    if code is None:
        rows = [[Cell(each, "cyan"), Cell(EXPLANATIONS[each][0])] for each in REMEDIES]
        if json:
            print_json({"codes": [_page(each) for each in REMEDIES]})
        else:
            print_table(("CODE", "CAUSE"), rows)
        return
    name = code.strip().removeprefix("error[").removesuffix("]").lower()
    if name in REMEDIES:
        page = _page(name)
        if json:
            print_json(page)
            return
        print_line(name, "bold")
        for title in ("cause", "fix", "example"):
            print_line(f"  {title + ':':<9}{page[title]}")
    elif name in codes:
        meaning, number = codes[name]
        cause, fix, example = ENDINGS[ExitCode(number)]
        if json:
            about = {"code": name, "meaning": meaning, "cause": cause, "fix": fix, "example": example}
            print_json({**about, "exit_code": number})
            return
        print_line(name, "bold")
        for title, text in (("meaning", meaning), ("cause", cause), ("fix", fix), ("example", example)):
            print_line(f"  {title + ':':<9}{text}")
        print_line(f"  exit code {number}: quarterdeck help exit-codes lists them all")
    else:
        hint = did_you_mean(name, (*REMEDIES, *codes))
        raise CommandError(ExitCode.NOT_FOUND, f"there is no code {code!r}{hint}", "quarterdeck explain lists them")


def _page(code: str) -> dict[str, str]:
    cause, example = EXPLANATIONS[code]
    return {"code": code, "cause": cause, "fix": REMEDIES[code], "example": example}
