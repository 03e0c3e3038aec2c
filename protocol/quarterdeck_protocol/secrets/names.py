"""Which names say that what they name is secret: of variables, options, headers, members, query parameters.  Pure.

A name is read as its words (`dbPassword`, `DB_PASSWORD` and `db-password` are the same), and mostly its last word
decides: `--api-key` is secret, `--key-file` is where one is kept, `--max-tokens` is a number, `--author` is no `auth`.
"""

import re
from enum import IntEnum
from typing import Final


class Secrecy(IntEnum):
    """How sure a name is that its value is secret."""

    NONE = 0
    LIKELY = 1
    """`--key`, `--token`, `--auth`: small numbers, switches and paths are no secrets."""
    CERTAIN = 2
    """`--password`, `--pin`: whatever stands there is."""


_CERTAIN_PARTS: Final = re.compile(
    r"passw|passphrase|passcode|secret(?!ar)|credential|seed_?(?:phrase|words)|recovery_?(?:phrase|words|codes?$)"
)
_LIKELY_PARTS: Final = re.compile(
    r"token(?!i[sz])|api_?keys?$|access_?keys?$|private_?keys?$|account_?keys?$|auth_?keys?$|shared_?keys?$|bearer|jwt"
    r"|authorization|cookie|webhook|csrf|xsrf|connection_?string|session_?id|sessid"
)
"""In a name's words, in small letters with `_` between them."""

_CERTAIN_LAST: Final = frozenset({"pw", "pin", "otp", "totp", "mdp", "psk"})
_LIKELY_LAST: Final = frozenset(
    {
        *("key", "keys", "auth", "pat", "cred", "creds", "sig", "signature", "sas", "dsn", "hmac", "sid", "nonce"),
        *("salt", "seed", "mnemonic", "oauth", "private"),
    }
)

_NO_SECRET_LAST: Final = frozenset(
    """
    age alg algo algorithm arn bits budget cache class col column command count default dir directory duration enabled
    encoding endpoint env expiration expires expiry field file filename folder format header helper host hours id idx
    index interval jar kind label len length level limit max method minutes mode name names option options param path
    paths policy port prefix prompt provider realm region required retries scheme scope scopes seconds server service
    size source splitter store suffix through timeout ttl type types uri url usage user username var version window
    """.split()  # noqa: SIM905 - as words they are read, as a list they are not
)
"""What may follow a secret's name to name something about it."""

_NO_SECRET_BEFORE_KEY: Final = frozenset(
    {"public", "primary", "foreign", "sort", "partition", "hot", "short", "group", "cache", "index", "row", "host"}
)

_DIRECTORIES: Final = frozenset({"PWD", "OLDPWD"})
"""A shell's variables for where it is and was."""

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_JOINT: Final = re.compile(r"[^A-Za-z0-9]+")

MAX_NAME_CHARS: Final = 128
"""Of a name that is looked at; a longer one is none."""


def secrecy_of(name: str) -> Secrecy:
    """How sure `name` is that its value is secret; the dashes of an option do not count."""
    if not name or len(name) > MAX_NAME_CHARS or name in _DIRECTORIES:
        return Secrecy.NONE
    words = [word.lower() for part in _JOINT.split(name) for word in _HUMP.split(part) if word]
    if not words:
        return Secrecy.NONE
    last = words[-1].rstrip("0123456789") or words[-1]
    if last in _NO_SECRET_LAST and len(words) > 1 and words[-2:] != ["session", "id"]:
        return Secrecy.NONE
    joined = "_".join([*words[:-1], last])
    # `dbpass`, `PGPWD`; yet `bypass` and `compass` are words of their own.
    glued = last.endswith(("pwd", "pass")) and last not in {"bypass", "compass", "encompass", "overpass", "underpass"}
    if _CERTAIN_PARTS.search(joined) or last in _CERTAIN_LAST or glued:
        return Secrecy.CERTAIN
    if last in {"key", "keys"} and len(words) > 1 and words[-2] in _NO_SECRET_BEFORE_KEY:
        return Secrecy.NONE
    return Secrecy.LIKELY if _LIKELY_PARTS.search(joined) or last in _LIKELY_LAST else Secrecy.NONE


def is_secret_name(name: str) -> bool:
    """Whether what is called `name` is probably secret."""
    return secrecy_of(name) is not Secrecy.NONE
