"""Secrets in texts: the one recogniser of them, and what takes known ones out.  Pure.

Module `tokens` knows a secret by name, by looks and in URLs, `recognise` in texts, values and command lines; `redactor`
takes known ones out in whatever spelling.
"""

from .recognise import (
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
from .redactor import REDACTED, Redactor, secret_values
from .tokens import is_path, is_secret_name, only_origins, origin_of

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
    "is_path",
    "is_secret_name",
    "only_origins",
    "origin_of",
    "secret_values",
    "secrets_in",
    "secrets_in_args",
]
