"""`quarterdeck serve --http`: what its options ask for, judged, and the server of it."""

import logging
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from quarterdeck.cli.configure.client_tokens import deck_names, tokens_path
from quarterdeck.cli.configure.secret import read_token, token_path
from quarterdeck.cli.exits import UsageError, cannot_serve
from quarterdeck.cli.output import print_json
from quarterdeck.config.places.paths import ledger_dir, state_dir

if TYPE_CHECKING:
    import socket

    from quarterdeck.common.http_wish import HttpWish
    from quarterdeck.config.settings import Settings
    from quarterdeck.daemon.messages import ServeRequest
    from quarterdeck.host.calls import Drain
    from quarterdeck.host.http.options import HttpOptions
    from quarterdeck.host.http.readiness import Unready
    from quarterdeck.host.http.serve import Scrape
    from quarterdeck.host.provider import ProviderHostImpl
    from quarterdeck.running_product import Product

_log = logging.getLogger("quarterdeck.serve")


@dataclass(frozen=True, slots=True)
class HttpPlan:
    """The HTTP server to open; no `listener` if another serve of the ledger listens, `announce` prints the URL."""

    options: "HttpOptions"
    listener: "socket.socket | None"
    announce: bool


def plan_http(
    withhold: Callable[[Iterable[str]], None],
    settings: "Settings",
    wish: "HttpWish",
    *,
    needs_token: bool,
    announce: bool,
    request: "ServeRequest",
) -> "tuple[Settings, HttpPlan]":
    """Judge the HTTP options and listen before anything is started, so that early clients wait.

    Raise CommandError if a server could call a serve without a token, or the address cannot be used.
    """
    from quarterdeck.daemon.deck_names import DeckNamesError
    from quarterdeck.daemon.decks import wanted_of
    from quarterdeck.host.http.options import HttpOptions, is_taken, listen, split_address
    from quarterdeck.ledger.store.lease import read_holder
    from quarterdeck_protocol.faults import ProtocolFault

    bind, port = split_address(wish.address)
    token = read_token(token_path()) if needs_token else None
    if token is not None:
        withhold((*settings.secrets, token))
    else:
        settings = replace(settings, open_port=port)
        _check_networks(settings, port)
    try:
        deck = deck_names().called(wanted_of(request.of_deck, settings))
    except DeckNamesError as error:
        _log.error("tokens that are bound to decks open nothing: %s", error)
        deck = ""
    wanted = HttpOptions(
        bind=bind,
        port=port,
        token=token,
        tokens=tokens_path(),
        allow_remote=wish.allow_remote,
        hosts=wish.allow_hosts,
        deck=deck,
        groups=request.groups,
        search=request.search,
    )
    try:
        return settings, HttpPlan(wanted, listen(wanted), announce)
    except ProtocolFault as fault:
        if is_taken(fault) and read_holder(ledger_dir(state_dir())) is not None:
            return settings, HttpPlan(wanted, None, announce)  # by the serve with the ledger, which says how to join it
        raise cannot_serve(fault) from None


def _check_networks(settings: "Settings", port: int) -> None:
    """Refuse servers that could call this serve, which asks for no token.

    Servers that a changed file brings later are judged at their start, by `Settings.open_port`.
    """
    from quarterdeck_protocol.configs import StdioServerConfig
    from quarterdeck_protocol.policy import SandboxPolicy
    from quarterdeck_sandbox import LaunchError, choose, known_machine, reaches

    policies = {config.id: config.sandbox for config in settings.servers if isinstance(config, StdioServerConfig)}
    if settings.native is not None:
        policies["commands of native tools"] = settings.native.settings.sandbox or SandboxPolicy()
    found = []
    for name, policy in policies.items():
        try:
            choice = choose(policy.values, known_machine(), allow_unsandboxed=settings.allow_unsandboxed)
        except LaunchError:
            continue  # it will not be started
        if reaches(choice.network, port):
            found.append(name)
    if found:
        raise UsageError(
            f"--no-token would let {', '.join(found)} call every tool: their network can reach this machine's loopback",
            'leave --no-token out, or give each the network "internet" (`quarterdeck doctor` says what that needs) or '
            '"none" in its "sandbox"',
        )


async def serve_over_http(
    product: "Product",
    host: "ProviderHostImpl",
    http_plan: HttpPlan,
    drain: "Drain | None",
    scrape: "Scrape",
    *,
    has_ledger: bool,
) -> None:
    """Serve until cancelled, and announce where; `scrape` gives metrics. `has_ledger`: this process has to be able to
    write the ledger.
    """
    from quarterdeck.config.places.paths import state_dir_words
    from quarterdeck.host.http.admission import PATH
    from quarterdeck.host.http.readiness import ledger_obstacles
    from quarterdeck.host.http.serve import serve_http

    def on_started(address: str, port: int) -> None:
        url = f"http://{f'[{address}]' if ':' in address else address}:{port}{PATH}"
        if http_plan.announce:
            print_json({"url": url})
        product.announce_url(url)
        _log.info("listening on %s; Ctrl-C or SIGTERM ends it", url)
        if http_plan.options.token is None:
            _log.warning("no token is required: every process of this machine, of any user, can call every tool")
        else:
            show = shlex.join(["quarterdeck", "token", "show", *state_dir_words()])
            _log.info("clients must send the bearer token in %s: `%s` prints it", token_path(), show)

    def unready() -> "Iterator[Unready]":
        if has_ledger:
            yield from ledger_obstacles(state_dir())
        yield from product.unready()

    await serve_http(
        host,
        http_plan.options,
        started=on_started,
        listener=http_plan.listener,
        unready=unready,
        drain=drain,
        scrape=scrape,
    )
