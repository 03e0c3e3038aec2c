"""Ask an authorization server for the tokens of a login that was approved: for another while, or for a machine."""

from collections.abc import Awaitable, Callable

import msgspec

from quarterdeck_protocol.configs import RemoteServerConfig

from .discovery import discover
from .guarded_http import GuardedHttp
from .terms import Grant, Terms
from .token_requests import by_credentials, dated, known_client, refresh


async def refreshed(http: GuardedHttp, grant: Grant, clock: Callable[[], float]) -> Grant:
    """A person's login for another while.

    Raises:
        LoginError: its issuer does not renew it.
    """
    tokens = await http.converse(refresh(grant))
    return msgspec.structs.replace(grant, tokens=dated(tokens, clock()))


async def obtained(
    http: GuardedHttp,
    config: RemoteServerConfig,
    grant: Grant | None,
    check: Callable[[Terms], Awaitable[None]],
    clock: Callable[[], float],
) -> Grant:
    """Access for the machine that we are, by the secret of its row.

    Args:
        http: asks.
        config: the server.
        grant: the login before; None for the first.
        check: judges terms before the secret goes anywhere; what it raises ends this.
        clock: seconds since the epoch.

    Raises:
        LoginError: nobody gives any.
    """
    login = config.auth
    assert login.client_id is not None
    assert login.client_secret is not None
    if grant is None or grant.client.id != login.client_id:
        found = await http.converse(discover(config))
        client = known_client(found.server, login.client_id, login.client_secret)
        terms, endpoint = found.terms, found.server.token_endpoint
    else:
        client = msgspec.structs.replace(grant.client, secret=login.client_secret)
        terms, endpoint = grant.terms, grant.token_endpoint
    await check(terms)
    tokens = dated(await http.converse(by_credentials(endpoint, client, terms)), clock())
    return Grant(
        url=config.url,
        terms=terms,
        client=msgspec.structs.replace(client, secret=""),  # the row has it
        tokens=tokens,
        token_endpoint=endpoint,
    )
