"""A completion is as long as the protocol lets it be."""

import json
from typing import Any

import pytest

from quarterdeck.fleet.core.completion import MAX_VALUES, bounded_completion


def body(**completion: Any) -> bytes:
    return json.dumps({"completion": completion, "_meta": {"own": 1}}).encode()


def test_ten_thousand_values_are_a_hundred_and_the_word_that_there_are_more() -> None:
    """Strict clients refuse the whole answer."""
    bounded = json.loads(bounded_completion(body(values=[str(n) for n in range(10_000)])))
    assert bounded["completion"]["values"] == [str(n) for n in range(MAX_VALUES)]
    assert (bounded["completion"]["total"], bounded["completion"]["hasMore"]) == (10_000, True)
    assert bounded["_meta"] == {"own": 1}


def test_the_servers_own_total_is_kept() -> None:
    """It may know of more than it sent."""
    said = body(values=["x"] * 101, total=5_000, hasMore=False)
    assert json.loads(bounded_completion(said))["completion"]["total"] == 5_000


@pytest.mark.parametrize(
    "said", [body(values=["x"] * MAX_VALUES), body(values=[]), body(values="x"), body(), b"{}", b'{"completion":[]}']
)
def test_anything_else_stays_as_it_is(said: bytes) -> None:
    """An answer would be rebuilt for nothing, or an odd one hidden from its client."""
    assert bounded_completion(said) is said
