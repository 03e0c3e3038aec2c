"""How prompts, resources and capabilities differ, and what that may do to a client."""

from typing import Any

import pytest

from quarterdeck.trust.diff.changes import capability_differences, prompt_differences, resource_differences

ONE: dict[str, Any] = {"name": "plan", "description": "Plan.", "arguments": [{"name": "day"}, {"name": "place"}]}


@pytest.mark.parametrize(
    ("change", "severity"),
    [
        ({"description": "Other."}, "text"),
        ({"arguments": [{"name": "place"}, {"name": "day"}]}, "text"),
        ({"arguments": [{"name": "day", "description": "Which?"}, {"name": "place"}]}, "text"),
        ({"arguments": [*ONE["arguments"], {"name": "more"}]}, "additive"),
        ({"arguments": [*ONE["arguments"], {"name": "more", "required": True}]}, "breaking"),
        ({"arguments": [{"name": "day"}]}, "breaking"),
        ({"arguments": [{"name": "day", "required": True}, {"name": "place"}]}, "breaking"),
        ({"arguments": [{"name": "day"}, {"name": "day"}]}, "breaking"),
        ({"x-unknown": 1}, "breaking"),
    ],
)
def test_each_change_of_a_prompt_is_told_by_what_it_may_do(change: dict[str, Any], severity: str) -> None:
    """A person would approve a prompt that asks for more, taking it for other words."""
    found = list(prompt_differences(ONE, {**ONE, **change}))
    assert [each.severity for each in found] == [severity]
    assert list(prompt_differences(ONE, dict(reversed(ONE.items())))) == []


def test_resources_and_capabilities_likewise() -> None:
    """Another type of content would pass for another description."""
    note = {"uri": "note://1", "name": "A", "mimeType": "text/plain"}
    assert [each.severity for each in resource_differences(note, {**note, "name": "B"})] == ["text"]
    assert [each.severity for each in resource_differences(note, {**note, "mimeType": "text/html"})] == ["breaking"]
    assert [each.severity for each in resource_differences(note, [1])] == ["breaking"]
    found = [
        (each.severity, each.place) for each in capability_differences({"tools": {}}, {"tools": {}, "prompts": {}})
    ]
    assert found == [("additive", "/prompts")]
    assert [each.severity for each in capability_differences({"tools": {}}, {})] == ["breaking"]
