"""Send a person to log in, and judge with what their browser comes back.  Pure.

request    the URL that is opened: PKCE with S256, a state, the resource (RFC 6749, RFC 7636, RFC 8707)
redirect   the URL of ours that the browser is sent to: it must be the very one, with our state, and of the issuer
that we asked (RFC 9207)
"""

import base64
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, urlencode, urlsplit

from .http_messages import DeniedError, UnsafeError, told
from .metadata import S256, ServerMetadata, check_code_flow

REDIRECT_PATH: Final = "/callback"

MAX_REDIRECT_CHARS: Final = 32 * 1024
"""Length of a URL that a browser comes back with; a code has some hundred characters."""

MAX_CODE_CHARS: Final = 8 * 1024

MAX_VALUES: Final = 64
"""Values in such a URL; five are known."""

CHANCE_BYTES: Final = 32
"""Random bytes of a state and a verifier: 43 characters, the fewest that RFC 7636, 4.1 allows."""


@dataclass(frozen=True, slots=True)
class Asked:
    """An authorization request: its URL, our redirect URI, and whether each answer of `issuer` names its issuer."""

    url: str
    redirect_uri: str
    state: str = field(repr=False)
    verifier: str = field(repr=False)
    issuer: str = ""
    says_issuer: bool = False


@dataclass(frozen=True, slots=True)
class Chance:
    """Unguessable values, new for each login: `CHANCE_BYTES` each, in URL-safe characters."""

    state: str
    verifier: str


def authorization_request(
    server: ServerMetadata,
    client_id: str,
    redirect_uri: str,
    chance: Chance,
    *,
    resource: str,
    scopes: tuple[str, ...] = (),
) -> Asked:
    """Return the request that a user opens; raise UnsafeError if a code of this server could be stolen."""
    endpoint = check_code_flow(server)
    asked = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "state": chance.state,
        "code_challenge": challenge_of(chance.verifier),
        "code_challenge_method": S256,
        "resource": resource,
        **({"scope": " ".join(scopes)} if scopes else {}),
        # OpenID Connect gives a refresh token to who asks anew alone (Core, 11).
        **({"prompt": "consent"} if "offline_access" in scopes else {}),
    }
    joint = "&" if urlsplit(endpoint).query else "?"
    return Asked(
        f"{endpoint}{joint}{urlencode(asked)}",
        redirect_uri,
        chance.state,
        chance.verifier,
        server.issuer,
        server.authorization_response_iss_parameter_supported is True,
    )


def challenge_of(verifier: str) -> str:
    """Return the public part of a verifier (RFC 7636, 4.2)."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode("ascii")).digest()).rstrip(b"=").decode()


def read_redirect(text: str, asked: Asked) -> str:
    """Return the code from the URL that a browser came back with, or from what a user pasted: URL or bare code.

    Raise DeniedError for a refusal, UnsafeError if it does not answer our request.
    """
    text = text.strip()
    if len(text) > MAX_REDIRECT_CHARS:
        raise UnsafeError("what came back is too long for a redirect")
    if "://" not in text:
        return _bare_code(text, asked)
    if not text.isascii():  # what a terminal could not read is no text that can be compared
        raise UnsafeError("what came back is no URL that a browser was sent to")
    if text.partition("?")[0] != asked.redirect_uri:
        raise UnsafeError(f"the browser came back to another address than {asked.redirect_uri}: nothing of it is used")
    values = _values_of(urlsplit(text).query)
    if not hmac.compare_digest(values.get("state", "").encode(), asked.state.encode()):
        raise UnsafeError("the browser came back from a login that was not begun here: its state is not ours")
    _check_issuer(values.get("iss"), asked)
    if "error" in values:
        why = told(values.get("error_description", ""))
        message = f"{told(asked.issuer)} gives no access: {told(values['error'])}"
        raise DeniedError(f"{message} ({why})" if why else message, values["error"])
    return _checked_code(values.get("code", ""))


def _values_of(query: str) -> dict[str, str]:
    try:
        given = parse_qs(query, keep_blank_values=True, max_num_fields=MAX_VALUES)
    except ValueError:
        raise UnsafeError(f"the browser came back with more than {MAX_VALUES} values") from None
    if any(len(values) > 1 for values in given.values()):
        raise UnsafeError("the browser came back with a value that is there twice")
    return {name: value for name, (value,) in given.items()}


def _bare_code(text: str, asked: Asked) -> str:
    """Return a pasted code: PKCE shows that it is ours, but not whose."""
    if asked.says_issuer:
        raise UnsafeError("paste the whole URL that the browser was sent to: a code alone does not say whose it is")
    return _checked_code(text)


def _check_issuer(given: str | None, asked: Asked) -> None:
    if given is None and asked.says_issuer:
        raise UnsafeError(f"{told(asked.issuer)} says of each of its answers that it is its own, and of this one not")
    if given is not None and given != asked.issuer:
        raise UnsafeError(f"{told(asked.issuer)} was asked, and {told(given)} answered")


def _checked_code(code: str) -> str:
    if not 1 <= len(code) <= MAX_CODE_CHARS or not code.isascii() or not code.isprintable() or " " in code:
        raise UnsafeError("the browser came back without a code")
    return code
