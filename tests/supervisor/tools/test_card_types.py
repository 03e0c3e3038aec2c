"""The deck's values."""

import pytest
from support.tools.cards import PlayedCard

from quarterdeck.common.tool_names import Profile
from quarterdeck.tools.card_types import CapabilityCard, capability_id


def test_an_id_is_its_name_and_never_empty() -> None:
    """A row without a name could be listed and not called."""
    assert capability_id("fs__read") == "fs__read"
    with pytest.raises(ValueError, match="needs a name"):
        capability_id("")


@pytest.mark.parametrize(
    ("profiles", "members"),
    [
        ((Profile.AUTHORING, Profile.SURVEY), [Profile.AUTHORING, Profile.SURVEY, Profile.ALL]),
        ((Profile.SURVEY,), [Profile.SURVEY, Profile.ALL]),
        ((Profile.ALL,), [Profile.ALL]),
        ((), []),
    ],
)
def test_all_admits_every_row_but_a_graft(profiles: tuple[Profile, ...], members: list[Profile]) -> None:
    """`all` would have fewer tools than `survey`, or tools of servers twice."""
    row = CapabilityCard(capability_id("look"), "Look", "", profiles, lambda _: PlayedCard())
    assert [profile for profile in Profile if row.in_profile(profile)] == members
