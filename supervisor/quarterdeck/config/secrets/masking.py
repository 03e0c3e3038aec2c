"""A row as it is written, without the secrets that are written into it.

A reference such as `${TOKEN}` stays, since it is no secret itself; what stands around it does not.  Pure.

The secrets that a server is given, so that no message, log or record repeats them.  Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig
from quarterdeck_protocol.secrets import hide_args, hide_text, hide_whole, secret_values, secrets_in, secrets_in_args


def secrets_of(config: ServerConfig, environment: Mapping[str, str] | None = None) -> frozenset[str]:
    """The secrets in a server's variables, headers, arguments and URL.

    Args:
        config: the server, variables resolved.
        environment: the whole environment of its process, what it inherits included; its `env` alone when absent.
    """
    if isinstance(config, StdioServerConfig):
        given = {**(environment or {}), **config.env}
        return frozenset({*secret_values(given), *secrets_in_args((config.command, *config.args))})
    return frozenset({*secret_values(config.headers), *secrets_in(config.url)})


MASK: Final = "••••"
"""Stands for a secret, whatever its length."""


def mask_row(row: Mapping[str, object]) -> dict[str, object]:
    """The row with the values in `env` and `headers` masked, and the secrets in all else."""
    return {key: _mask_member(key, value) for key, value in row.items()}


def mask_value(value: object) -> object:
    """A value that may be a secret: of a text its references remain, null is shown, all else is masked."""
    if value is None or value == "":
        return value
    return hide_whole(value, _mask) if isinstance(value, str) else MASK


def mask_args(args: Sequence[object]) -> list[object]:
    """Arguments with the secrets among them masked; what is no text stays what it is, unless it is one."""
    words = [str(argument) for argument in args]
    return [
        shown if isinstance(argument, str) or shown != word else argument
        for argument, word, shown in zip(args, words, hide_args(words, _mask), strict=True)
    ]


def mask_text(text: str) -> str:
    """A text with the secrets in it masked."""
    return hide_text(text, _mask)


def _mask(_: str) -> str:
    return MASK


def _mask_member(key: str, value: object) -> object:
    if key in {"env", "headers"} and isinstance(value, Mapping):
        return {name: mask_value(member) for name, member in value.items()}
    if key in {"env", "headers"}:
        return value if value is None else MASK
    if key == "args":
        return mask_args(value) if isinstance(value, list) else value if value is None else MASK
    return _mask_inside(value)


def _mask_inside(value: object) -> object:
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, Mapping):
        return {key: _mask_inside(member) for key, member in value.items()}
    return [_mask_inside(member) for member in value] if isinstance(value, list) else value
