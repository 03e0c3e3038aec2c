"""`quarterdeck ui` and `top`: open the daemon's page in a browser, or show the same in the terminal."""

import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

from quarterdeck.cli import options
from quarterdeck.cli.exits import CommandError, ExitCode, UsageError
from quarterdeck.cli.output import hint, print_json, print_line
from quarterdeck.cli.parameters import Option
from quarterdeck.cli.source import answer_of, checked
from quarterdeck.config.places.paths import ledger_dir, state_dir
from quarterdeck.daemon.control.protocol import OpenPage, PageLink
from quarterdeck.daemon.messages import Order
from quarterdeck.daemon.place import daemon_dir
from quarterdeck.daemon.start import log_path, start_daemon
from quarterdeck.ledger.store.lease import DAEMON, read_holder

from .daemon_commands import ask_for_status, start_errors


def ui(
    print_only: Annotated[bool, Option("--print", help="Print the link; open no browser.")] = False,
    read_only: Annotated[bool, Option(help="For a page that shows everything, and can do nothing.")] = False,
    json: options.Json = False,
) -> None:
    """Open the page of the daemon, started if none runs: what runs, what waits for approval, calls, the ledger.

    The link is good once, for a minute; the page it opens, in that browser, until the daemon ends.
    """
    with start_errors():
        directory = start_daemon(daemon_dir(), os.environ)
    ask_for_status(directory, Order.STATUS)  # which it answers once it answers all else
    holder = read_holder(ledger_dir(state_dir()))
    answer = None
    if holder is not None and holder.command == DAEMON:
        answer = answer_of(Path(holder.runtime_directory), OpenPage(read_only))
    if not isinstance(answer, PageLink):
        if answer is not None:
            checked(answer)
        raise CommandError(ExitCode.NO_ANSWER, "the daemon ended at its start", f"its log says why: {log_path()}")
    if json:
        print_json({"url": answer.url})
        return
    print_line(answer.url)
    if not print_only and not webbrowser.open(answer.url):
        hint("no browser could be opened: open the link in one of this machine, within a minute")


def top() -> None:
    """Show what runs and what waits for approval in the terminal, and decide it there."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("top needs a terminal", "quarterdeck ps shows what runs, quarterdeck trust list what waits")
    try:
        from .top import Top
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("textual"):
            raise
        raise UsageError("top needs Textual, which is not installed", "pip install 'quarterdeck[tui]'") from None
    Top().run()
