"""Ask an authorization server for the tokens of a login that was approved: for another while, or for a machine."""

from collections.abc import Callable

import msgspec

from quarterdeck_protocol.configs import RemoteServerConfig

from .discovery import Discovered
from .guarded_http import GuardedHttp
from .terms import Client, Grant, Terms
from .token_requests import by_credentials, dated, known_client, refresh


async def refreshed(http: GuardedHttp, grant: Grant, clock: Callable[[], float]) -> Grant:
    """Renew a user's login, or raise LoginError."""
    tokens = await http.converse(refresh(grant))
    return msgspec.structs.replace(grant, tokens=dated(tokens, clock()))


async def obtained(
    http: GuardedHttp, config: RemoteServerConfig, found: Discovered, clock: Callable[[], float]
) -> Grant:
    """Return a machine's access by the secret of its row, on agreed terms, or raise LoginError."""
    login = config.auth
    client = known_client(found.server, login.client_id or "", login.client_secret or "")
    return await _by_secret(http, config, client, found.terms, found.server.token_endpoint, clock)


async def obtained_again(
    http: GuardedHttp, config: RemoteServerConfig, grant: Grant, clock: Callable[[], float]
) -> Grant:
    """Renew a machine's access at its issuer, or raise LoginError."""
    client = msgspec.structs.replace(grant.client, secret=config.auth.client_secret or "")
    return await _by_secret(http, config, client, grant.terms, grant.token_endpoint, clock)


async def _by_secret(
    http: GuardedHttp,
    config: RemoteServerConfig,
    client: Client,
    terms: Terms,
    endpoint: str,
    clock: Callable[[], float],
) -> Grant:
    tokens = dated(await http.converse(by_credentials(endpoint, client, terms)), clock())
    return Grant(
        url=config.url,
        terms=terms,
        client=msgspec.structs.replace(client, secret=""),  # the row has it
        tokens=tokens,
        token_endpoint=endpoint,
    )
