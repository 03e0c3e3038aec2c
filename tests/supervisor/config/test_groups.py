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


BELONGS = {
    Listing.TOOLS: ("github__list", "fs__read_file", "grep"),
    Listing.PROMPTS: ("github__list", "fs__plan"),
    Listing.RESOURCES: (*("gitlab__repo://x", "fs__file:///docs/a", "fs__file:///docs/b%20c", "fs__file:///docs/b c"),),
    Listing.TEMPLATES: ("fs__file:///docs/{a}",),
}

DOES_NOT = {
    # "git" is a native tool, not a server.
    Listing.TOOLS: ("github__delete_repo", "fs__read_secret", "fs__write", "git", "fs__plan"),
    Listing.PROMPTS: ("fs__read_file",),
    Listing.RESOURCES: (
        *("fs__file:///etc/passwd", "fs__file:///docs/../etc/passwd", "fs__file:///docs/%2e%2E/etc/passwd"),
        *("fs__file:///docs/..%5cetc", "fs__file:///docs/a/../b%20c", *(f"gitlab__{uri}" for uri in SECRET)),
    ),
}


def test_what_belongs_to_a_group() -> None:
    """A door would see more than its group, or less."""
    for table, is_in in ((BELONGS, True), (DOES_NOT, False)):
        for listing, names in table.items():
            assert [name for name in names if REVIEW.has(name, listing) is not is_in] == [], listing


@pytest.mark.parametrize(("server", "is_known"), [("github", True), ("fs", True), ("db", False)])
def test_a_server_is_known_of_where_something_of_it_could_belong(server: str, is_known: bool) -> None:
    """A model would read instructions for tools that it has not."""
    assert REVIEW.has_some_of(server) is is_known


def test_a_groups_name_can_stand_in_a_path() -> None:
    """There would be groups that no URL can name."""
    names = {"review": True, "a-1_B": True, "": False, "-a": False, "a/b": False, "x" * 65: False}
    assert {name: is_group_name(name) for name in names} == names
