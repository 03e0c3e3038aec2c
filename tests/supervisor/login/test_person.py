"""A login is made on just the terms that were found, and agreed to."""

import pytest

from quarterdeck.login.discovery import discover
from quarterdeck.login.person import log_in
from quarterdeck.login.redirect_listener import RedirectListener

from .played_issuer import ISSUER, PlayedHttp, PlayedIssuer, config_of


async def nobody(url: str, _: RedirectListener) -> None:
    pytest.fail(f"{url} was shown")


async def test_a_machine_gets_the_scopes_that_its_user_agreed_to() -> None:
    """`login --scope` would end in a complaint that the terms had changed, or get less than was agreed to."""
    played = PlayedIssuer()
    machine = config_of(client_id="me", client_secret="s3cret", issuer=ISSUER)
    found = played.converse(discover(machine, "", ("write",)))
    grant = await log_in(machine, found, PlayedHttp(played), nobody)  # type: ignore[arg-type]
    assert grant.terms == found.terms
    assert found.terms.scopes == ("read", "write")
    assert played.form["scope"] == "read write"
