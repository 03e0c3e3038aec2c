"""Names of servers and tools: what is legal, how a qualified name splits, and what a mistyped one may mean."""

import difflib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck_protocol.names import (
    LOOSE_RATIO,
    MAX_MEASURED,
    MAX_SERVER_ID_CHARS,
    QUALIFIER,
    RemoteToolRef,
    did_you_mean,
    is_server_id,
    is_tool_name,
    nearest,
    nearest_key,
    nearest_tool,
    qualify_tool_name,
    server_of_qualified,
    to_server_id,
)

ID_PATTERN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?=[A-Za-z0-9-])){0,31}")
"""The contract's own words for a server id."""

LEGAL_IDS = st.from_regex(ID_PATTERN, fullmatch=True).filter(lambda text: text.isascii())


@pytest.mark.parametrize(
    "text", ["", "_a", "-a", "a_", "a__b", "a.b", "a b", "a/b", "é", "a\n", "A" * 33, "a" * 31 + "_", "٣", "a\0", "a__"]
)
def test_an_illegal_id_is_refused(text: str) -> None:
    """It could make a tool's name ambiguous, or leave the names that clients allow."""
    assert not is_server_id(text)


@pytest.mark.parametrize(
    ("name", "server_id"),
    [
        *(("fs", "fs"), ("my.server", "my-server"), ("my server", "my-server"), ("@scope/server", "scope-server")),
        *(("a__b", "a_b"), ("__a", "a"), ("a_", "a"), ("-a-", "a"), ("A" * 40, "A" * 32)),
        *(("x" * 31 + "__y", "x" * 31), ("a" * 31 + "._", "a" * 31), ("naïve", "na-ve")),
    ],
)
def test_a_configured_name_is_mapped_to_a_readable_id(name: str, server_id: str) -> None:
    """The warning shows both; the id should be recognisable."""
    assert to_server_id(name) == server_id


def test_names_without_anything_to_keep_get_ids_of_their_own_that_stay() -> None:
    """A server with a Japanese name could not be used, or would be another one at the next start."""
    names = ["", "___", "---", "日本", "日本語", "..", " ", "\ud800"]
    ids = [to_server_id(name) for name in names]
    assert len(set(ids)) == len(names)
    assert ids[3] == "server-cf2abf"
    assert all(re.fullmatch("server-[0-9a-f]{6}", server_id) for server_id in ids)


@given(name=st.text())
def test_a_mapped_id_is_legal_and_stays_itself(name: str) -> None:
    """Loading a configuration twice gives the same ids."""
    server_id = to_server_id(name)
    assert is_server_id(server_id)
    assert len(server_id) <= MAX_SERVER_ID_CHARS
    assert to_server_id(server_id) == server_id


@given(name=LEGAL_IDS)
def test_a_legal_name_is_its_own_id(name: str) -> None:
    """What the user wrote is what the user sees."""
    assert to_server_id(name) == name


@given(text=st.text(st.sampled_from("aZ09_-. \n\0é"), max_size=40))
def test_legality_is_the_contracts_pattern(text: str) -> None:
    """Configuration, trust and ledger all rely on one definition."""
    assert is_server_id(text) is (ID_PATTERN.fullmatch(text) is not None)


@given(server=LEGAL_IDS, tool=st.text(min_size=1))
def test_a_qualified_name_splits_at_its_server_whatever_the_tool_is_called(server: str, tool: str) -> None:
    """No server can name a tool so that the call goes to another one."""
    qualified = qualify_tool_name(RemoteToolRef(server, tool))
    assert qualified == f"{server}__{tool}"
    assert server_of_qualified(qualified) == server
    assert qualified.partition(QUALIFIER)[2] == tool


@pytest.mark.parametrize("name", ["read", "", "a_b", "__read", "____"])
def test_a_name_without_a_server_has_none(name: str) -> None:
    """Native tools belong to no server."""
    assert server_of_qualified(name) is None


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        *(("read_file", True), ("a.b-c_D", True), ("x" * 128, True), ("", False), ("x" * 129, False), ("a b", False)),
        *(("a\n", False), ("é", False), ("a/b", False)),
    ],
)
def test_a_tool_name_is_what_every_client_can_be_shown(name: str, legal: bool) -> None:
    """Clients refuse a whole list for one bad name."""
    assert is_tool_name(name) is legal


TOOLS = ["full__save_note", "full__read_notes", "other__list", "read", "write"]


@pytest.mark.parametrize(
    ("name", "near"),
    [("raed", "read"), ("Read", "read"), ("writ", "write"), ("rad", "read"), ("delete", None), ("", None)],
)
def test_a_slip_or_two_of_typing_is_near_and_another_word_is_not(name: str, near: str | None) -> None:
    """Somebody would be sent to a tool that does something else."""
    assert nearest(name, ["read", "write"]) == near


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("full__nope", None),
        ("full__save_nte", "full__save_note"),
        ("ful__save_note", "full__save_note"),
        ("elsewhere__list", "other__list"),
        ("save_note", "full__save_note"),
        ("raed", "read"),
        ("full__", None),
        ("nobody__nothing", None),
    ],
)
def test_of_a_tools_name_either_half_may_be_wrong(name: str, near: str | None) -> None:
    """A server's id in front would make every tool of it look alike."""
    assert nearest_tool(name, TOOLS) == near


def test_a_long_name_and_many_known_ones_take_no_time_to_speak_of() -> None:
    """A caller could hold up everybody by asking for what is not there."""
    assert nearest("x" * 100_000, (f"tool{number}" for number in range(1_000_000))) is None


def test_names_that_differ_in_their_order_alone_are_measured_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that lists thousands of them would hold everybody up for a second at each name that there is not."""
    measured = 0
    ratio = difflib.SequenceMatcher.ratio

    def counted(matcher: difflib.SequenceMatcher[str]) -> float:
        nonlocal measured
        measured += 1
        return ratio(matcher)

    monkeypatch.setattr(difflib.SequenceMatcher, "ratio", counted)
    letters = "abcdefgh" * 4
    known = [letters[place:] + letters[:place] + f"{place:04}" for place in range(1_000)]
    nearest(letters[::-1], known)
    assert 0 < measured <= MAX_MEASURED
    assert nearest("abcdefgj", [*known, "abcdefgh"]) == "abcdefgh"


@given(st.text("abc", max_size=8), st.lists(st.text("abc", max_size=8), max_size=10, unique=True))
def test_the_nearest_name_is_the_one_of_difflib(name: str, known: list[str]) -> None:
    """Looking less closely would propose another name than the one that was meant."""
    plain = {each: each for each in known}
    near = difflib.get_close_matches(name, plain, n=1, cutoff=LOOSE_RATIO)
    assert nearest_key(name, known) == (near[0] if near else None)


@pytest.mark.parametrize(
    ("name", "known"),
    [("callTimeoutS", "call_timeout_s"), ("SANDBOX", "sandbox"), ("evn", "env"), ("disabeld", "disabled")],
)
def test_a_name_that_people_confuse_is_near(name: str, known: str) -> None:
    """A server would start without what its row says under that key."""
    assert nearest(name, [known]) == known


def test_two_words_that_are_only_alike_are_not_near() -> None:
    """Another program's key would be called a mistake."""
    assert nearest("installed", ["disabled"]) is None


def test_of_the_keys_of_one_object_a_likely_one_is_enough() -> None:
    """Whoever writes `memory` would have to read all keys."""
    assert nearest_key("memory", ["processes", "memory_bytes"]) == "memory_bytes"
    assert nearest("memory", ["processes", "memory_bytes"]) is None


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("raed", ["read", "write"], ": did you mean 'read'?"),
        ("x", ["read", "write"], ": the tools are read, write"),
        ("x", [f"tool{number}" for number in range(20)], " and 4 more"),
        ("x", [], ""),
        ("r" * 1_000_000, ["read"], ": the tools are read"),
    ],
)
def test_the_nearest_name_is_proposed(name: str, known: list[str], said: str) -> None:
    """A user would have to look for a typing error, or read a hundred names."""
    hint = did_you_mean(name, known, "tools")
    assert hint.endswith(said)
    assert len(hint) < 200
