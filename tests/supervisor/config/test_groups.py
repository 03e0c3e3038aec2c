"""What belongs to a group, by name and by list."""

import pytest

from quarterdeck.config.groups import Group, is_group_name
from quarterdeck_protocol.offers import Listing

REVIEW = Group(
    servers=("git*",),
    tools=("fs__read_*", "grep"),
    prompts=("fs__plan",),
    resources=("fs__file:///docs/*",),
    hide=("github__delete_*", "fs__read_secret", "gitlab__file:///a b/secret*"),
)

SECRET = (
    *("file:///a b/secret", "file:///a%20b/secret.txt", "file:///a b//secret", "file:///a b/%73ecret"),
    *("FILE:///a b/secret", "file://localhost/a b/secret", "file:///c/../a b/./secret"),
)
"""One file, as it can be written."""


@pytest.mark.parametrize(
    ("name", "listing", "is_in"),
    [
        ("github__list", Listing.TOOLS, True),
        ("github__list", Listing.PROMPTS, True),
        ("github__delete_repo", Listing.TOOLS, False),
        ("gitlab__repo://x", Listing.RESOURCES, True),
        ("fs__read_file", Listing.TOOLS, True),
        ("fs__read_file", Listing.PROMPTS, False),
        ("fs__read_secret", Listing.TOOLS, False),
        ("fs__write", Listing.TOOLS, False),
        ("grep", Listing.TOOLS, True),
        ("git", Listing.TOOLS, False),  # a native tool, not a server
        ("fs__plan", Listing.PROMPTS, True),
        ("fs__plan", Listing.TOOLS, False),
        ("fs__file:///docs/a", Listing.RESOURCES, True),
        ("fs__file:///docs/{a}", Listing.TEMPLATES, True),
        ("fs__file:///etc/passwd", Listing.RESOURCES, False),
        ("fs__file:///docs/../etc/passwd", Listing.RESOURCES, False),
        ("fs__file:///docs/%2e%2E/etc/passwd", Listing.RESOURCES, False),
        ("fs__file:///docs/..%5cetc", Listing.RESOURCES, False),
        ("fs__file:///docs/a/../b%20c", Listing.RESOURCES, False),
        ("fs__file:///docs/b%20c", Listing.RESOURCES, True),
        ("fs__file:///docs/b c", Listing.RESOURCES, True),
        *((f"gitlab__{uri}", Listing.RESOURCES, False) for uri in SECRET),
    ],
)
def test_what_belongs_to_a_group(name: str, listing: Listing, is_in: bool) -> None:
    """A door would see more than its group, or less."""
    assert REVIEW.has(name, listing) is is_in


@pytest.mark.parametrize(("server", "is_known"), [("github", True), ("fs", True), ("db", False)])
def test_a_server_is_known_of_where_something_of_it_could_belong(server: str, is_known: bool) -> None:
    """A model would read instructions for tools that it has not."""
    assert REVIEW.has_some_of(server) is is_known


def test_a_groups_name_can_stand_in_a_path() -> None:
    """There would be groups that no URL can name."""
    names = {"review": True, "a-1_B": True, "": False, "-a": False, "a/b": False, "x" * 65: False}
    assert {name: is_group_name(name) for name in names} == names
