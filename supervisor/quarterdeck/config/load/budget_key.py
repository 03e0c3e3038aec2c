"""The key `max_result_tokens`: above how many tokens a tool's result is cut for clients.  Pure."""

from typing import Final

from .document import BUDGET_KEY, JsonObject
from .problems import RowError, describe

MAX_TOKENS: Final = 1_000_000_000
"""More than the largest result has that a server may say."""


def read_budget(document: JsonObject) -> int | None:
    """What a file says of it; None when it says nothing.

    Raises:
        RowError: it says something else.
    """
    value = document.get(BUDGET_KEY)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise RowError(BUDGET_KEY, f"expected a whole number, got {describe(value)}")
    if not 1 <= value <= MAX_TOKENS:
        raise RowError(BUDGET_KEY, f"must be from 1 to {MAX_TOKENS:,}")
    return value
