"""What tools are called before clients: it fits, it is nobody else's, and it stays; and which names are reserved."""

import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from quarterdeck.common.tool_names import (
    CLIENT_PREFIXES,
    DEFAULT_LIMIT,
    MAX_NAME_CHARS,
    MIN_LIMIT,
    NATIVE_NAMES,
    NameBudget,
    may_be_alias,
    public_names,
)
from quarterdeck.tools.catalogue import capability_ids
from quarterdeck_protocol.identity import CLIENT_NAME
from quarterdeck_protocol.names import (
    MAX_SERVER_ID_CHARS,
    QUALIFIER,
    RemoteToolRef,
    is_server_id,
    qualify_tool_name,
    server_of_qualified,
)

EVERYBODYS = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""What OpenAI, Anthropic and Gemini all take, written down apart from the code."""

SERVERS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", fullmatch=True).filter(is_server_id)
TOOLS = st.text("abcxyzABC019_.-", min_size=1, max_size=128)
QUALIFIED = st.builds(RemoteToolRef, SERVERS, TOOLS).map(qualify_tool_name)
ANY_NAME = QUALIFIED | st.text(max_size=80) | st.text(st.characters(categories=["Cs"]), max_size=3)
BUDGETS = st.integers(MIN_LIMIT, 128).map(NameBudget)

TWINS = tuple(f"server__{'x' * 60}_{number}" for number in (491343, 2719162))
"""Two names whose short digests are the same: found by trying three million."""


@given(st.lists(ANY_NAME, max_size=12), BUDGETS)
@example(list(TWINS), NameBudget())
@example(["", "_", "__", "___", "7__7", "-__-"], NameBudget(MIN_LIMIT))
def test_every_tool_has_a_name_of_its_own_that_fits(names: list[str], budget: NameBudget) -> None:
    """A client would refuse the whole list, or call another tool than was meant."""
    public = public_names(names, budget)
    assert list(public) == list(dict.fromkeys(names))
    assert len(set(public.values())) == len(public)
    for shown in public.values():
        assert len(shown) <= budget.limit
        assert EVERYBODYS.fullmatch(shown[:MAX_NAME_CHARS])
        assert budget.fits(shown)


@given(st.lists(ANY_NAME, max_size=12), BUDGETS)
def test_a_name_that_fits_stays_as_it_is(names: list[str], budget: NameBudget) -> None:
    """Permissions that users have given by name would be lost, and nobody would know the tool again."""
    public = public_names(names, budget)
    assert all(shown == name for name, shown in public.items() if budget.fits(name))
    assert public_names(public.values(), budget) == {shown: shown for shown in public.values()}


@given(st.lists(QUALIFIED, max_size=8), st.lists(QUALIFIED, max_size=8), BUDGETS, st.randoms())
def test_other_tools_and_their_order_do_not_matter(names, others, budget, random) -> None:
    """A client's saved permission, or a prompt, would mean another tool after a server is added."""
    alone = public_names(names, budget)
    together = [*names, *others]
    random.shuffle(together)
    public = public_names(together, budget)
    assert {name: public[name] for name in alone} == alone


@given(QUALIFIED, BUDGETS)
def test_an_alias_is_told_from_a_native_tools_name(name: str, budget: NameBudget) -> None:
    """A server could answer in a native tool's place."""
    assume(not budget.fits(name))
    (alias,) = public_names([name], budget).values()
    assert QUALIFIER in alias
    assert may_be_alias(alias)
    assert alias not in capability_ids()
    assert all(QUALIFIER not in native and NameBudget(MIN_LIMIT).fits(native) for native in capability_ids())


@given(SERVERS, st.text("abc._", min_size=3, max_size=128))
def test_the_default_keeps_the_servers_id_whole(server: str, tool: str) -> None:
    """A person who is asked to allow the call could not see whose tool it is."""
    assume(server[0].isalpha())
    (shown,) = public_names([f"{server}__{tool}"], NameBudget()).values()
    assert server_of_qualified(shown) == server


@pytest.mark.parametrize(
    ("name", "limit", "shown"),
    [
        ("git__log", 46, "git__log"),
        ("git__log.all", 46, "git__log_all_md6a7sxz"),
        ("7zip__list", 46, "_7zip__list_plk26b7y"),
        (
            "github__add_pull_request_review_comment_to_pending_review",
            57,
            "github__add_pull_request_review_comment_to_pending_review",
        ),
        (
            "github__add_pull_request_review_comment_to_pending_review",
            46,
            "github__add_pull_request_review_comme_4buclect",
        ),
        ("github__add_pull_request_review_comment_to_pending_review", 24, "github__add_pul_4buclect"),
        (f"{'s' * 32}__{'t' * 128}", 46, f"{'s' * 32}__ttt_ztdvde73"),
        (f"{'s' * 32}__{'t' * 128}", 24, "ssssssssss__ttt_ztdvde73"),
        (f"my_{'s' * 29}__{'t' * 128}", 24, "my_sssssss__ttt_bb6o7yma"),
        (f"abcdefghi_{'s' * 22}__{'t' * 128}", 24, "abcdefghi__tttt_5fdq4vlq"),
        ("plain.name", 46, "plain_name___sf3dyiuq"),
    ],
)
def test_an_alias_can_be_read(name: str, limit: int, shown: str) -> None:
    """A model chooses by name, and a digest says nothing; what clients have saved must never change."""
    assert public_names([name], NameBudget(limit)) == {name: shown}


def test_a_server_that_names_a_tool_as_another_ones_alias_does_not_get_its_calls() -> None:
    """A hostile server could catch calls that a user has allowed for another."""
    budget, victim = NameBudget(MIN_LIMIT), f"github__{'create_' * 8}"
    alias = public_names([victim], budget)[victim]
    for thieves in ([alias], [alias, public_names([victim, alias], budget)[victim]]):
        public = public_names([*thieves, victim], budget)
        assert all(public[thief] == thief for thief in thieves)
        assert public[victim] not in thieves
        assert public == public_names([victim, *reversed(thieves)], budget)


def test_neither_of_two_tools_has_the_alias_that_both_would_have() -> None:
    """A server that finds a name with another one's digest would have its calls."""
    budget = NameBudget()
    apart = [public_names([name], budget)[name] for name in TWINS]
    assert apart[0] == apart[1]
    public = public_names(TWINS, budget)
    assert apart[0] not in public.values()
    assert len(set(public.values())) == len(TWINS)
    assert public == public_names(reversed(TWINS), budget)


def test_the_default_fits_behind_every_known_clients_prefix() -> None:
    """One client's users would lose tools, or the option promise what it does not keep."""
    longest = f"{'s' * MAX_SERVER_ID_CHARS}__{'t' * 128}"
    (shown,) = public_names([longest], NameBudget()).values()
    assert len(shown) == DEFAULT_LIMIT == 46
    for prefix in CLIENT_PREFIXES.values():
        assert CLIENT_NAME in prefix
        assert EVERYBODYS.fullmatch(prefix + shown)
    assert NameBudget.behind("mcp__deck__").limit == 53
    assert NameBudget.behind("").limit == MAX_NAME_CHARS
    assert set(capability_ids()) == NATIVE_NAMES


@pytest.mark.parametrize("limit", [MIN_LIMIT - 1, 1, 0, -1])
def test_a_budget_in_which_nothing_can_be_told_apart_is_refused(limit: int) -> None:
    """All tools would be digests."""
    with pytest.raises(ValueError, match="24 are needed"):
        NameBudget(limit)
    with pytest.raises(ValueError, match="24 are needed"):
        NameBudget.behind("p" * (MAX_NAME_CHARS - limit))
