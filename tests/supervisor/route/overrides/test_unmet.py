"""What a configuration names and no server offers."""

from typing import Any, Final

import pytest

from quarterdeck.config.groups import Group
from quarterdeck.config.overrides import ServerOverrides
from quarterdeck.route.overrides.unmet import Names, public_names, unlisted_servers, unmet_by_groups, unmet_by_overrides
from quarterdeck_protocol.offers import Listing

OWN: Final[Names] = {Listing.TOOLS: ["create"], Listing.PROMPTS: ["plan"], Listing.RESOURCES: ["db://notes"]}

OFFERED: Final[dict[str, Names | None]] = {
    "github": {Listing.TOOLS: ["github__create_issue", "github__get_issue"], Listing.PROMPTS: ["github__plan"]},
    "fs": {Listing.TOOLS: ["fs__read_file"], Listing.RESOURCES: ["fs__file:///docs/a"]},
    "down": None,
}


@pytest.mark.parametrize(
    ("said", "note"),
    [
        ({"rename": {"creat": "new"}}, "'rename' names 'creat', which it does not offer: did you mean 'create'?"),
        ({"describe": {"x": "X"}}, "'describe' names 'x', which it does not offer"),
        ({"arguments": {"plan": {"a": 1}}}, "'arguments' names 'plan', which it does not offer"),
        ({"hide": ["delet_*"]}, "'hide' has 'delet_*', which fits nothing that it offers"),
        ({"rename": {"create": "new", "plan": "think"}, "describe": {"plan": "P"}}, ""),
        ({"arguments": {"create": {"a": 1}}, "hide": ["cre*", "pl?n", "file:///nobody/lists/*", "*notes*"]}, ""),
    ],
)
def test_what_names_nothing_is_said(said: dict[str, Any], note: str) -> None:
    """A slip would leave a tool to be seen, called and named as its server wants, and nobody know it."""
    notes = unmet_by_overrides(OWN, ServerOverrides.model_validate(said))
    assert notes == ([note] if note else [])


@pytest.mark.parametrize(
    ("said", "note"),
    [
        ({"servers": ["githb"]}, "'githb' in its 'servers', which is no server: did you mean 'github'?"),
        ({"tools": ["githb__*"]}, "'githb__*' in its 'tools', which is of no server: did you mean 'github'?"),
        (
            {"tools": ["github__get_isue"]},
            "'github__get_isue' in its 'tools', which fits nothing that is offered: did you mean 'github__get_issue'?",
        ),
        ({"tools": ["gerp"]}, "'gerp' in its 'tools', which fits nothing that is offered: did you mean 'grep'?"),
        (
            {"prompts": ["github__plam"]},
            "'github__plam' in its 'prompts', which fits nothing that is offered: did you mean 'github__plan'?",
        ),
        (
            {"resources": ["fss__file:///*"]},
            "'fss__file:///*' in its 'resources', which is of no server: did you mean 'fs'?",
        ),
        ({"servers": ["fs"], "hide": ["fs__wirte"]}, "'fs__wirte' in its 'hide', which fits nothing that is offered"),
        ({"servers": ["g*", "down"], "tools": ["grep", "down__x", "*__get_*", "d*"], "hide": ["github__cre*"]}, ""),
        ({"resources": ["fs__file:///nobody/lists/*", "down__x:*"], "prompts": ["*__plan", "down__*"]}, ""),
    ],
)
def test_what_a_group_has_that_there_is_not_is_said(said: dict[str, Any], note: str) -> None:
    """A model would be shown less than was meant, or what was to be left out, and nobody know it."""
    notes = unmet_by_groups({"g": Group.model_validate(said)}, OFFERED)
    assert notes == ([f"the group 'g' has {note}"] if note else [])


def test_a_group_may_hide_what_its_server_hides_anyhow_and_may_not_show_it() -> None:
    """A user who hides a tool twice would be told of a slip, and one whose group lacks what a row hides of none."""
    overrides = ServerOverrides.model_validate({"hide": ["create", "db:*"], "rename": {"create": "new"}})
    assert public_names("s", OWN, overrides) == {Listing.TOOLS: [], Listing.PROMPTS: ["s__plan"], Listing.RESOURCES: []}
    hidden = public_names("s", OWN, overrides, are_hidden=True)
    assert hidden == {Listing.TOOLS: ["s__new"], Listing.PROMPTS: [], Listing.RESOURCES: ["s__db://notes"]}
    offered, names = {"s": public_names("s", OWN, overrides)}, [name for each in hidden.values() for name in each]
    assert unmet_by_groups({"g": Group(servers=("s",), hide=("s__n*",))}, offered, names) == []
    assert unmet_by_groups({"g": Group(tools=("s__n*",))}, offered, names) == [
        "the group 'g' has 's__n*' in its 'tools', which fits nothing that is offered"
    ]


def test_a_server_that_has_listed_nothing_is_named_where_something_is_said_of_it() -> None:
    """It would seem that all is well; or each server that is down be told of."""
    overrides = {"down": ServerOverrides(hide=("x",)), "fs": ServerOverrides(hide=("x",))}
    assert unlisted_servers({}, overrides, OFFERED) == ["down"]
    assert unlisted_servers({"g": Group(tools=("down__*",))}, {}, OFFERED) == ["down"]
    assert unlisted_servers({"g": Group(servers=("down",), tools=("fs__*",))}, {}, OFFERED) == []
