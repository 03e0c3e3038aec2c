"""Secrets in texts: the one recogniser of them, and what takes known ones out.  Pure.

`tokens` knows a secret by name and looks, `urls` in URLs, `text` in texts, values and command lines; `redaction` takes
known ones out in whatever spelling.
"""

from .redaction import REDACTED, Redactor, secret_values
from .text import (
    Hide,
    has_login,
    hide_args,
    hide_text,
    hide_value,
    hide_whole,
    holds_secret,
    is_ordinary,
    secrets_in,
    secrets_in_args,
)
from .tokens import is_secret_name
from .urls import only_origins, origin_of

__all__ = [
    "REDACTED",
    "Hide",
    "Redactor",
    "has_login",
    "hide_args",
    "hide_text",
    "hide_value",
    "hide_whole",
    "holds_secret",
    "is_ordinary",
    "is_secret_name",
    "only_origins",
    "origin_of",
    "secret_values",
    "secrets_in",
    "secrets_in_args",
]
