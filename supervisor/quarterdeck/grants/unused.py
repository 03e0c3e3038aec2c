"""Tell which grants of a row nothing needs, as far as that can be known.

Nobody records which files a process opens: of a server that is called, no use of a grant is known.  Only looks.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Final

import msgspec

from quarterdeck.config.allow_paths import KEYS, missing
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_sandbox import LaunchError, RequiredPath, is_within, is_within_any


class Record(msgspec.Struct, frozen=True):
    """What the ledger has of a server in some days.

    Attributes:
        since: when they began; times are as the ledger writes them.
        calls: of the server since then.
        first_call: the oldest call that the ledger still has, of any server; empty for none.
        given: when the row was approved last; empty for never.
    """

    days: int
    since: str
    calls: int
    first_call: str
    given: str

    @property
    def gap(self) -> str:
        """Why a server without calls may have been called all the same, or have had no time for it; else empty."""
        if not self.first_call or self.first_call > self.since:
            return f"the ledger has calls since {self.first_call or 'today'} only"
        if not self.given or self.given > self.since:
            return f"its row was approved on {self.given}" if self.given else "its row was never approved"
        return ""


GRANTS: Final = ("read", "write", "grants")
"""The keys of a row's `sandbox` whose use is told."""


def written_grants(row: Mapping[str, object], config: StdioServerConfig) -> dict[str, list[str]] | None:
    """Return the grants of a row as they are written, by key; None if one is written twice."""
    sandbox = value if isinstance(value := row.get("sandbox"), Mapping) else {}
    written = {key: list(value) for key in GRANTS if isinstance(value := sandbox.get(key), list)}
    is_plain = all(len(values) == len(getattr(config.sandbox, key)) for key, values in written.items())
    return written if is_plain else None


class GrantUse(msgspec.Struct, frozen=True):
    """One grant, `value` as it is written in the row, and its use in words; `is_unused` if it can be taken away."""

    key: str
    value: str
    use: str
    is_unused: bool = False


def find_uses(
    config: StdioServerConfig, written: Mapping[str, list[str]], environ: Mapping[str, str], record: Record
) -> Iterator[GrantUse]:
    """Yield the grants of a row, which has them `written` by key, in the order of the configuration."""
    sandbox, why = config.sandbox, ""
    try:
        named, _ = missing(config, environ, sandbox.model_copy(update=dict.fromkeys(written, ())))
    except LaunchError as error:
        named, why = [], f"not known: {error}"
    # Sets, for a row may have thousands.
    wider = {"read": frozenset(sandbox.read + sandbox.write), "write": frozenset(sandbox.write)}
    for key, values in written.items():
        for value, path in zip(values, getattr(sandbox, key), strict=True):
            use, is_unused = (
                _of_path(path, wider[key], sandbox.hidden, named) if key in KEYS and not why else (why, False)
            )
            if not use:
                use, is_unused = _by(record)
            yield GrantUse(key, value, use, is_unused)


def _of_path(
    path: str, wider: Collection[str], hidden: Sequence[str], named: Sequence[RequiredPath]
) -> tuple[str, bool]:
    if need := next((each for each in named if is_within(each.path, path) or is_within(path, each.path)), None):
        return f"{need.source or 'its working directory'} names {need.path}", False
    if not os.path.lexists(path):
        return "it does not exist", True
    other = next((str(each) for each in PurePath(path).parents if str(each) in wider), "")
    if other and not is_within_any(path, hidden):
        return f"{other} gives it, too", True
    return "", False


def _by(record: Record) -> tuple[str, bool]:
    if record.calls:
        return f"not known: {record.calls:,} calls in {record.days} days, and no record of what they opened", False
    return (f"not known: {record.gap}", False) if record.gap else (f"no call in {record.days} days", True)
