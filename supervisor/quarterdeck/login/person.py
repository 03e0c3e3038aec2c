"""Log a person in: send their browser to the authorization server, wait for it to come back, and take the tokens.

    found = await http.converse(discover(config))       whom to ask, and for what
    grant = await log_in(config, found, http, …)        once those terms are agreed to

Whoever calls shows the URL, and opens it; what a person pastes goes to `RedirectListener.take`.
"""

import secrets
from collections.abc import Callable, Coroutine
from time import time
from typing import Any, Final

import anyio

from quarterdeck_protocol.configs import RemoteServerConfig
from quarterdeck_protocol.identity import CLIENT_NAME

from .authorization import CHANCE_BYTES, Chance, authorization_request, read_redirect
from .discovery import Discovered
from .guarded_http import GuardedHttp
from .http_messages import DeniedError, UnavailableError
from .metadata import check_code_flow
from .redirect_listener import RedirectListener, listening
from .renewal import obtained
from .terms import Client, Grant, Terms
from .token_requests import dated, known_client, redeem, register

PERSON_S: Final = 600.0
"""For a person to log in; a code is good for ten minutes at most (RFC 6749, 4.1.2)."""

Show = Callable[[str, RedirectListener], Coroutine[Any, Any, None]]
"""Shows a person the URL where they log in, and hands on what they paste, until it is cancelled."""


async def log_in(config: RemoteServerConfig, found: Discovered, http: GuardedHttp, show: Show) -> Grant:
    """Return a login on the terms that were found, and agreed to.

    Raise LoginError if it fails, OSError if the port of the row is taken.
    """
    if not config.auth.needs_person:
        return await obtained(http, config, found, time)
    check_code_flow(found.server)
    async with listening(config.auth.redirect_port) as listener:
        client = await _client(config, found, http, listener.redirect_uri)
        chance = Chance(secrets.token_urlsafe(CHANCE_BYTES), secrets.token_urlsafe(CHANCE_BYTES))
        terms = found.terms
        asked = authorization_request(
            found.server, client.id, listener.redirect_uri, chance, resource=terms.resource, scopes=terms.scopes
        )
        back, denied = "", None
        with anyio.move_on_after(PERSON_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(show, asked.url, listener)
                try:
                    back = await listener.wait(lambda url: read_redirect(url, asked))
                except DeniedError as error:
                    denied = error  # out of the group, which would wrap it
                tasks.cancel_scope.cancel()
        if denied is not None:
            raise denied
        if not back:
            raise UnavailableError(f"nobody logged in within {PERSON_S / 60:g} minutes")
    tokens = dated(await http.converse(redeem(found.server, client, asked, back, terms)), time())
    return Grant(
        url=config.url,
        terms=terms if terms.scopes else Terms.of(terms.issuer, terms.resource, tokens.scopes or ()),
        client=client,
        tokens=tokens,
        token_endpoint=found.server.token_endpoint,
        revocation_endpoint=found.server.revocation_endpoint or "",
    )


async def _client(config: RemoteServerConfig, found: Discovered, http: GuardedHttp, redirect_uri: str) -> Client:
    login = config.auth
    if login.client_id is not None:
        return known_client(found.server, login.client_id, login.client_secret or "")
    if login.client_metadata_url is not None and found.server.client_id_metadata_document_supported:
        return Client(id=login.client_metadata_url)
    return await http.converse(register(found.server, redirect_uri, CLIENT_NAME, found.terms.scopes))
