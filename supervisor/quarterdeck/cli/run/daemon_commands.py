"""`quarterdeck up`, `down` and `status`: the daemon that all clients of a user share."""

import os
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec

from quarterdeck.cli import options
from quarterdeck.cli.exits import CommandError, ExitCode, as_command_error
from quarterdeck.cli.output import Column, print_json, print_line, report, show
from quarterdeck.cli.parameters import Option
from quarterdeck.cli.source import print_troubles
from quarterdeck.common.http_wish import HttpWish
from quarterdeck.common.words import duration
from quarterdeck.config.places.paths import UnsafePathError
from quarterdeck.daemon.client import HeldListener, ask_daemon, kill_daemon, wait_until_gone
from quarterdeck.daemon.messages import DaemonStatus, DeckStatus, HttpStatus, Order
from quarterdeck.daemon.place import (
    SOCKET_NAME,
    NoAnswerError,
    NoDaemonError,
    OtherDaemonError,
    StartTimeoutError,
    daemon_dir,
    ledger_daemon,
    running_dir,
    service_dir,
    start_lock,
)
from quarterdeck.daemon.start import log_path, start_daemon
from quarterdeck.host.http.admission import DECKS_PATH, METRICS_PATH, PATH


def up(
    replace: Annotated[
        bool, Option(help="Start a new daemon in place of the one that runs; its clients stay connected.")
    ] = False,
    http: options.ListenHttp = False,
    address: options.HttpAddress = None,
    allow_remote: options.AllowRemote = False,
    allow_host: options.AllowHost = None,
    metrics: options.Metrics = None,
    json: options.Json = False,
) -> None:
    """Start the daemon, and have it stay until `quarterdeck down`; one that runs stays from now on.

    Without this, it starts with the first client and ends some minutes after the last one.
    """
    wish = options.http_wish(http, address, allow_remote, allow_host)
    with HeldListener() as held:
        _up(wish, held, metrics or "", replace=replace, json=json)


def _up(wish: HttpWish | None, held: HeldListener, metrics: str, *, replace: bool, json: bool) -> None:
    before = _end(Order.REPLACE, held) if replace else None
    if not replace and (lost := _unreachable()) is not None:
        found = ask_for_status(running_dir(), Order.STATUS)
        if found is None or found.pid != lost.pid:
            why = str(OtherDaemonError(lost.pid))
            raise CommandError(ExitCode.NO_ANSWER, why, "quarterdeck up --replace ends it, and starts a new one")
    if wish is not None and wish.address and ask_for_status(running_dir(), Order.STATUS) is None:
        _listen_there_first(wish)
    if before is not None and before.http is not None and (wish is None or wish == HttpWish()):
        wish = before.http.wish or wish  # as it listened before
    if before is not None and not metrics:
        metrics = before.metrics.removeprefix("http://").removesuffix(METRICS_PATH)
    # A new daemon lives as the one that it replaces did.
    stays = before is None or before.stays or wish is not None or bool(metrics)
    order = Order.STAY if stays else Order.STATUS
    for _ in range(2):  # the one that is reached first may have been killed, and its socket not been closed yet
        with start_errors():
            directory = start_daemon(daemon_dir(), os.environ)
        if (status := ask_for_status(directory, order, wish, held, metrics)) is not None:
            break
    else:
        raise CommandError(ExitCode.NO_ANSWER, "the daemon ended at its start", f"its log says why: {log_path()}")
    if status.refusal or (wish is not None and status.http is None):
        why = ": ".join(filter(None, ("the daemon cannot serve", status.refusal)))
        raise CommandError(ExitCode.NO_ANSWER, why, f"its log says why: {log_path()}")
    if status.http is not None and status.http.problem:
        raise CommandError(ExitCode.USAGE, f"the daemon runs without HTTP: {status.http.problem}", status.http.remedy)
    if metrics and status.metrics_problem:
        raise CommandError(
            ExitCode.USAGE,
            f"the daemon runs without metrics: {status.metrics_problem}",
            "name another address: quarterdeck up --metrics HOST:PORT",
        )
    if json:
        print_json(msgspec.structs.replace(status, stays=stays or status.stays))
        return
    print_line(f"The daemon runs (process {status.pid}, quarterdeck {status.version}).")
    if directory == service_dir():
        print_line("It is a service: `quarterdeck service uninstall` ends that.")
    elif stays:
        from .service import has_manager

        print_line("It stays until `quarterdeck down`, or until you log out.")
        if has_manager():
            print_line("To have it at each login: quarterdeck service install")
    else:
        print_line(
            "It stays until some minutes after its last client, as the one before; `quarterdeck up` has it stay."
        )
    if status.http is not None:
        print_line(f"It listens at {status.http.url}, for clients that send a bearer token:")
        print_line("  `quarterdeck link CLIENT --http` writes both into a client's file;")
        print_line("  `quarterdeck token create NAME` makes a token for any other.")
    _print_metrics(status)


def down(json: options.Json = False) -> None:
    """End the daemon: calls under way are answered, then servers and clients end.

    One that does not answer is killed.
    """
    was_there = _end(Order.END) is not None
    report({"ended": was_there}, "The daemon has ended." if was_there else "No daemon runs.", json=json)
    if not json and (service_dir() / SOCKET_NAME).exists():
        print_line("Its service starts it again with the next client: `quarterdeck service uninstall` ends that.")


def status(json: options.Json = False) -> None:
    """Show the daemon: who is connected, from where and since when; and what runs."""
    found = ask_for_status(running_dir(), Order.STATUS)
    if json:
        print_json({"running": found is not None, **({"daemon": found} if found is not None else {})})
        return
    if found is None and (lost := _unreachable()) is not None:
        print_line(f"The daemon (process {lost.pid}) cannot be reached: `quarterdeck down` ends it.")
        return
    if found is None:
        print_line("No daemon runs: the first client starts one, and so does `quarterdeck up`.")
        return
    stays = "until `quarterdeck down`" if found.stays else "until some minutes after its last client"
    print_line(f"The daemon runs for {_age(found.since)}, {stays} (process {found.pid}, {found.version}).")
    if found.http is not None:
        _print_http(found.http)
    _print_metrics(found)
    labels = _labels(found.decks)
    print_line()
    deck_columns = (
        Column("DECK", lambda deck: labels[deck.key]),
        Column("READY", lambda deck: f"{deck.ready} of {deck.servers}"),
        Column("NATIVE", "native"),
        Column("SINCE", "since", form=_age),
        Column("FILES", lambda deck: deck.files or (f"run: {deck.command}" if deck.command else "")),
    )
    _print_rows(found.decks, deck_columns)
    for deck in found.decks:
        if deck.problem:
            print_line(f"{deck.name or deck.key}: {deck.problem}", "yellow")
    print_troubles(trouble for deck in found.decks for trouble in deck.troubles)
    print_line()
    client_columns = (
        Column("CLIENT", "name"),
        Column("VERSION", "version"),
        Column("PID OR TOKEN", lambda client: f"token {client.token}" if client.token else client.pid),
        Column("CALLS", lambda each: f"{each.calls} ({each.waiting} wait)" if each.waiting else each.calls),
        Column("RATE", lambda each: f"{each.rate}/min" + (f", {each.refused} refused" if each.refused else "")),
        Column("SINCE", "since", form=_age),
        Column("DECK", lambda client: labels.get(client.deck, client.deck), empty="opening"),
        Column("FOLDER", "cwd"),
        Column("OWN SERVERS", "own_servers"),
    )
    _print_rows(found.clients, client_columns)
    if busy := [server for server in found.servers if server.calls or server.waiting or server.refused]:
        print_line()
        server_columns = (
            Column("SERVER", "id"),
            Column("DECK", lambda server: labels.get(server.deck, server.deck)),
            Column("CALLS", "calls"),
            Column("WAITING", "waiting"),
            Column("REFUSED", lambda server: [f"{count} ({limit})" for limit, count in server.refused.items()]),
        )
        show(busy, server_columns)
        for server in busy:
            if server.waits:
                print_line(server.waits, "yellow")
    awake: dict[str, dict[str, None]] = {}
    for server in found.servers:
        if server.awake:
            awake.setdefault(", ".join(server.awake), {})[server.id] = None
    for reasons, servers in awake.items():
        print_line(f"awake ({reasons}): {', '.join(servers)}", "dim")
    if found.refused_doors:
        print_line(f"{found.refused_doors} clients were one too many: {found.max_doors} may be connected.", "yellow")


def _print_metrics(found: DaemonStatus) -> None:
    if found.metrics:
        print_line(f"Metrics are at {found.metrics}.")
    if found.metrics_problem:
        print_line(f"Metrics: {found.metrics_problem}", "yellow")


def _print_http(http: HttpStatus) -> None:
    if http.url:
        open_now = f"{http.requests:,} of {http.max_requests:,} requests are open"
        held = f"{http.held_bytes / 1024**2:.0f} of {http.max_held_bytes / 1024**2:.0f} MiB are held"
        print_line(f"It listens at {http.url}; a deck is at {http.url.removesuffix(PATH)}{DECKS_PATH}NAME{PATH}.")
        print_line(f"Over HTTP {open_now}, {held} of what they and unread answers contain.")
        if http.refused:
            refused = ", ".join(f"{count:,} by {limit}" for limit, count in http.refused.items())
            print_line(f"Refused by the bounds of HTTP: {refused}.", "yellow")
    if http.problem:
        print_line(f"HTTP: {http.problem}", "yellow")
        print_line(f"  fix: {http.remedy}", "yellow")


def _labels(decks: Sequence[DeckStatus]) -> dict[str, str]:
    """Return the name of each deck by its key; decks of one name with different environments get a number."""
    counts = Counter(deck.name for deck in decks)
    return {
        deck.key: (deck.name if counts[deck.name] == 1 else f"{deck.name} {deck.key[:4]}") if deck.name else deck.key
        for deck in decks
    }


def _print_rows(rows: Sequence[object], columns: Sequence[Column]) -> None:
    show(rows, columns)
    if not rows:
        print_line(f"{columns[0].title}S: none")


def _listen_there_first(wish: HttpWish) -> None:
    """Have the next daemon listen there, not where the user's file or a killed daemon says."""
    from .daemon_http import ask_for

    if (service_dir() / SOCKET_NAME).exists():
        return  # a service manager starts it, as the user's file says
    directory = daemon_dir()
    with start_errors(), start_lock(directory):
        ask_for(directory, wish)


def start_errors() -> AbstractContextManager[None]:
    """Turn errors of starting the daemon into those of a command."""
    return as_command_error(
        StartTimeoutError, UnsafePathError, OSError, remedy="see quarterdeck doctor", code=ExitCode.NO_ANSWER
    )


def ask_for_status(
    directory: Path,
    order: Order,
    http: HttpWish | None = None,
    held: HeldListener | None = None,
    metrics: str = "",
) -> DaemonStatus | None:
    """Return the daemon's status after an order, None without a daemon. Raise CommandError if it does not answer."""
    try:
        return ask_daemon(directory, order, http, held, metrics)
    except NoDaemonError:
        return None
    except NoAnswerError as error:
        raise CommandError(ExitCode.NO_ANSWER, str(error), f"its log may say why: {log_path()}") from None


def _end(order: Order, held: HeldListener | None = None) -> DaemonStatus | None:
    """End the daemon, by force if it does not answer, and wait. Return what ran, None without one; some facts may be
    missing.
    """
    directory, lost = running_dir(), _unreachable()
    before: DaemonStatus | None = None
    try:
        before = ask_daemon(directory, order, held=held)
    except NoDaemonError:
        pass
    except NoAnswerError as error:
        with as_command_error(OSError, remedy=f"its log may say why: {log_path()}", code=ExitCode.NO_ANSWER):
            before = DaemonStatus(kill_daemon(directory), "", "", stays=True)
        print_line(f"{error}: it was killed (process {before.pid})", stderr=True)
    if before is not None:
        _await_end(before.pid, before.drain_s)
    if lost is not None and (before is None or before.pid != lost.pid):
        with suppress(ProcessLookupError):
            os.kill(lost.pid, signal.SIGTERM)
        _await_end(lost.pid)
    return before or lost


def _await_end(pid: int, drain_s: float = 0.0) -> None:
    if not wait_until_gone(pid, drain_s):
        raise CommandError(ExitCode.NO_ANSWER, f"the daemon does not end (process {pid})", f"kill -KILL {pid}")


def _unreachable() -> DaemonStatus | None:
    """Return the daemon that holds the ledger, though we may not reach it; None without one.

    Its runtime directory was removed, or it speaks another protocol in a directory of that.
    """
    pid = ledger_daemon()
    return DaemonStatus(pid, "", "", stays=True) if pid is not None else None


def _age(since: str) -> str:
    return duration(max(0.0, (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds()))
