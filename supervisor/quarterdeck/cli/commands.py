"""The table of commands: module, panel of the help, summary and examples of each.

A table, so that `--help` imports no command, and a command no other.  Pure.
"""

from dataclasses import dataclass
from typing import Final

PROGRAM: Final = "quarterdeck"


@dataclass(frozen=True, slots=True)
class Entry:
    """One command of the first level, or a group of them.

    Attributes:
        home: `module:attribute`, below `quarterdeck.cli`: a function, or a `Group`.
        panel: the heading under which the help lists it.
        examples: command lines, each with what it does; of a group those of its commands.
    """

    name: str
    home: str
    panel: str
    summary: str
    examples: tuple[tuple[str, str], ...]


RUN: Final = "Run"
TRUST: Final = "Trust"
CONFIGURE: Final = "Configure"
DIAGNOSE: Final = "Diagnose"

PANELS: Final = (RUN, TRUST, CONFIGURE, DIAGNOSE)
"""In the order of the help."""

ENTRIES: Final = (
    Entry(
        "serve",
        "run.serve:serve",
        RUN,
        "Publish every server's tools, and native ones, as one MCP server",
        (
            ("quarterdeck serve -c mcp.json", "for the client that starts it, on stdio"),
            ("quarterdeck serve --http", "for many clients, on http://127.0.0.1:8808/mcp"),
            ("quarterdeck serve --profile workspace --workspace ~/project", "native tools alone, in one folder"),
        ),
    ),
    Entry(
        "tools",
        "run.tools:tools",
        RUN,
        "List the tools that can be called",
        (
            ("quarterdeck tools -c mcp.json", "each as server__tool, with its description"),
            ("quarterdeck tools --json", "their schemas, too"),
        ),
    ),
    Entry(
        "call",
        "run.tools:call",
        RUN,
        "Call one tool and print what it answers",
        (
            ("""quarterdeck call everything__echo '{"message": "hello"}'""", "the arguments are one JSON object"),
            ("quarterdeck call everything__echo - < arguments.json", "the same from a file"),
        ),
    ),
    Entry(
        "ps",
        "run.servers:ps",
        RUN,
        "Show every server of the running serve",
        (
            ("quarterdeck ps", "phase, tools, process, memory, and what is wrong"),
            ("quarterdeck ps --json", "the same for a program"),
        ),
    ),
    Entry(
        "inspect",
        "run.servers:inspect",
        RUN,
        "Show one server in detail: its policy, and how much is enforced",
        (
            ("quarterdeck inspect notes", "command, receipt, limits and their use, last death"),
            ("quarterdeck inspect notes -c mcp.json --json", "the same for a program"),
        ),
    ),
    Entry(
        "logs",
        "diagnose.logs:logs",
        RUN,
        "Show what a server wrote on its standard error",
        (
            ("quarterdeck logs notes -n 50", "its last fifty lines"),
            ("quarterdeck logs notes -f", "and what it writes from now on"),
        ),
    ),
    Entry(
        "restart",
        "run.servers:restart",
        RUN,
        "Restart one server",
        (
            ("quarterdeck restart notes", "its past crashes are forgotten"),
            ("quarterdeck restart notes --json", "how it is afterwards, for a program"),
        ),
    ),
    Entry(
        "trust",
        "trust.trust:group",
        TRUST,
        "Decide what servers may offer: list, diff, approve, block, scan",
        (
            ("quarterdeck trust list", "what is held or blocked, and what the scan found"),
            ("quarterdeck trust list --all", "what is approved, too"),
            ("quarterdeck trust diff", "what changed, of every server"),
            ("quarterdeck trust diff notes --whole", "all of it, untruncated"),
            ("quarterdeck trust approve notes save_note", "one tool, in the form that is shown"),
            ("quarterdeck trust approve --project", "how the servers of this folder's files are started"),
            ("quarterdeck trust block notes save_note", "not offered again until approved"),
            ("quarterdeck trust block notes --all", "the server itself"),
            ("quarterdeck trust scan", "today's rules over all that was ever offered"),
            ("quarterdeck trust scan --json", "the same for a program"),
        ),
    ),
    Entry(
        "lock",
        "trust.lock:lock",
        TRUST,
        "Write the approved hashes to deck.lock, or compare the servers with it",
        (
            ("quarterdeck lock", "write deck.lock, for version control"),
            ("quarterdeck lock --check", "fail with 7 when servers list anything else"),
        ),
    ),
    Entry(
        "ledger",
        "trust.ledger:group",
        TRUST,
        "Read the record of what was offered, approved and called",
        (
            ("quarterdeck ledger log --since '2h ago'", "what happened"),
            ("quarterdeck ledger log --server notes --json", "of one server, for a program"),
            ("quarterdeck ledger show", "every server and tool, and how each stands"),
            ("quarterdeck ledger show --at 2026-01-31T15:00Z", "the same, as it was then"),
            ("quarterdeck ledger diff 42", "what became different since event 42"),
            ("quarterdeck ledger diff 42 50 --json", "between two events, for a program"),
            ("quarterdeck ledger calls", "the last calls"),
            ("quarterdeck ledger calls --json", "the same for a program"),
            ("quarterdeck ledger verify", "whether it is whole and unchanged"),
            ("quarterdeck ledger verify --against deck.lock", "and once ended as the lock says"),
            ("quarterdeck ledger export backup.jsonl", "a backup, without the calls"),
            ("quarterdeck ledger export -", "the same to a program"),
            ("quarterdeck ledger import backup.jsonl", "into an empty ledger"),
            ("quarterdeck ledger import backup.jsonl --state-dir ~/other", "into another state directory's"),
            ("quarterdeck ledger compact", "move old events to the archive"),
            ("quarterdeck ledger compact --json", "the same for a program"),
        ),
    ),
    Entry(
        "config",
        "configure.config:group",
        CONFIGURE,
        "See where configuration comes from and what is wrong with it; import other clients'",
        (
            ("quarterdeck config path", "every file that is looked for"),
            ("quarterdeck config path --json", "the same for a program"),
            ("quarterdeck config show", "what differs from the defaults, and where it is written"),
            ("quarterdeck config show --all", "every value"),
            ("quarterdeck config check", "everything that is wrong, here and on this machine"),
            ("quarterdeck config check -c mcp.json", "of one file"),
            ("quarterdeck config schema > quarterdeck.schema.json", "for completion in an editor"),
            ("quarterdeck config schema", "on the terminal"),
            ("quarterdeck config import claude-desktop --dry-run", "what would be imported"),
            ("quarterdeck config import ./mcp.json --server notes", "one server of a file"),
        ),
    ),
    Entry(
        "link",
        "configure.clients:link",
        CONFIGURE,
        "Put quarterdeck into a client's configuration",
        (
            ("quarterdeck link claude-desktop --dry-run", "show the change alone"),
            ("quarterdeck link cursor vscode -c mcp.json", "two clients, with this file's servers"),
        ),
    ),
    Entry(
        "unlink",
        "configure.clients:unlink",
        CONFIGURE,
        "Take quarterdeck out of a client's configuration",
        (
            ("quarterdeck unlink claude-desktop", "and leave the rest of its file as it is"),
            ("quarterdeck unlink cursor --dry-run", "show the change alone"),
        ),
    ),
    Entry(
        "secret",
        "configure.secret:group",
        CONFIGURE,
        "Store the secrets that ${keyring:NAME} refers to",
        (
            ("quarterdeck secret set GITHUB_TOKEN", "typed without echo"),
            ("pass github | quarterdeck secret set GITHUB_TOKEN", "piped in"),
            ("quarterdeck secret list", "the names alone"),
            ("quarterdeck secret list --json", "the same for a program"),
            ("quarterdeck secret remove GITHUB_TOKEN", "for good"),
            ("quarterdeck secret remove GITHUB_TOKEN --json", "the same for a program"),
        ),
    ),
    Entry(
        "token",
        "configure.secret:token_group",
        CONFIGURE,
        "Show the bearer token of serve --http",
        (
            ("quarterdeck token show", "the value alone"),
            ("""claude mcp add --header "Authorization: Bearer $(quarterdeck token show)" …""", "in another command"),
        ),
    ),
    Entry(
        "purge",
        "configure.purge:purge",
        CONFIGURE,
        "Show what is kept on disk, and remove it",
        (
            ("quarterdeck purge", "what there is, and how large"),
            ("quarterdeck purge notes", "one server's home and log"),
        ),
    ),
    Entry(
        "doctor",
        "diagnose.doctor:doctor",
        DIAGNOSE,
        "Find out what this machine can enforce, by trying it",
        (
            ("quarterdeck doctor", "and what to do about each gap"),
            ("quarterdeck doctor --json", "the same for a program"),
        ),
    ),
    Entry(
        "explain",
        "diagnose.explain:explain",
        DIAGNOSE,
        "Explain an error's code: cause, remedy, example",
        (
            ("quarterdeck explain command_not_found", "one of the codes in error[…]"),
            ("quarterdeck explain", "all of them"),
        ),
    ),
    Entry(
        "allow",
        "configure.allow:allow",
        TRUST,
        "Give a server's sandbox the files that its row names",
        (
            ("quarterdeck allow fs", "what its command line and variables lack, shown and asked first"),
            ("quarterdeck allow fs --write ~/notes --dry-run", "a folder that you name; changes nothing"),
        ),
    ),
    Entry(
        "sandbox",
        "run.sandbox:group",
        DIAGNOSE,
        "Try a sandbox policy on any command",
        (
            ("quarterdeck sandbox run --network none -- curl https://example.com", "without network"),
            ("quarterdeck sandbox run --read . -- ls ~", "it sees this folder, and no home"),
        ),
    ),
    Entry(
        "checkpoint",
        "run.checkpoint:group",
        DIAGNOSE,
        "Undo what write and edit of a session changed",
        (
            ("quarterdeck checkpoint list --workspace ~/project", "every change, call by call"),
            ("quarterdeck checkpoint list --json", "the same for a program"),
            ("quarterdeck checkpoint restore 7", "as it was before call 7"),
            ("quarterdeck checkpoint restore 7 --workspace ~/project", "of another folder"),
        ),
    ),
    Entry(
        "demo",
        "diagnose.demo:demo",
        DIAGNOSE,
        "See what happens when servers hang and crash",
        (
            ("quarterdeck demo", "half a minute; it leaves nothing behind"),
            ("quarterdeck demo --json", "what was promised and kept, for a program"),
        ),
    ),
    Entry(
        "completion",
        "configure.completion:completion",
        CONFIGURE,
        "Print the script that completes commands and options in your shell",
        (
            ("quarterdeck completion bash >> ~/.bashrc", "for good; zsh and fish likewise"),
            ('eval "$(quarterdeck completion bash)"', "for this shell"),
        ),
    ),
)

BY_NAME: Final = {entry.name: entry for entry in ENTRIES}


def examples_of(path: str) -> tuple[tuple[str, str], ...]:
    """The examples of a command, as `config show`, or of a group: those of its commands."""
    entry = BY_NAME.get(path.split(maxsplit=1)[0])
    if entry is None:
        return ()
    words = f"quarterdeck {path}"
    return tuple(each for each in entry.examples if each[0].find(words) >= 0 or " " not in path)
