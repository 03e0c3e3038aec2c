"""A tool that comes back under another name is recognised."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.trust.judge.overview import MIN_LIKENESS, Rename, suspect_renames


def tool(description: str = "", **arguments: str) -> dict[str, Any]:
    properties = {name: {"type": kind} for name, kind in arguments.items()}
    return {"description": description, "inputSchema": {"type": "object", "properties": properties}}


WEATHER = tool("Returns the weather of a city for the next days.", city="string", days="integer")
MAIL = tool("Sends a message to somebody by mail.", to="string", body="string")


def test_a_tool_that_changed_its_name_alone_is_certain() -> None:
    """The definition is the same to the last letter, its name member apart."""
    old, new = {**WEATHER, "name": "weather"}, {**WEATHER, "name": "zzz"}
    assert suspect_renames({"weather": old}, {"zzz": new, "mail": MAIL}) == (Rename("weather", "zzz", 1.0),)


def test_a_tool_that_changed_a_little_of_everything_is_suspected() -> None:
    """To dodge a block, a server changes more than the name."""
    new = tool(
        "Returns the weather of a town for the next days, at once.", city="string", days="integer", unit="string"
    )
    (rename,) = suspect_renames({"get_weather": WEATHER}, {"fetch_weather": new})
    assert (rename.old, rename.new) == ("get_weather", "fetch_weather")
    assert MIN_LIKENESS <= rename.likeness < 1


def test_strangers_are_no_pair() -> None:
    """One tool was dropped and another one added: that happens every day."""
    assert suspect_renames({"get_weather": WEATHER}, {"send_mail": MAIL}) == ()


def test_definitions_that_say_nothing_are_told_by_their_names() -> None:
    """Two tools without words and arguments are equal, and yet `ping` is not `shutdown`."""
    assert suspect_renames({"ping": tool()}, {"shutdown": tool()}) == ()
    assert suspect_renames({"list_files": tool()}, {"list_file": tool()}) == (Rename("list_files", "list_file", 0.947),)


def test_the_likeliest_pair_wins() -> None:
    """Of two heirs one is told, and the other stays new."""
    near = tool("Returns the weather of a city for the next days!", city="string", days="integer")
    far = tool("Returns the weather of a city.", city="string")
    (rename,) = suspect_renames({"weather": WEATHER}, {"weather_a": far, "weather_b": near})
    assert rename.new == "weather_b"


def test_five_thousand_on_each_side_are_paired_where_they_are_equal() -> None:
    """Bounded work, whatever a server lists: equal ones find each other without any comparison."""
    vanished = {f"old{number}": tool(f"Does thing {number}.") for number in range(5_000)}
    appeared = {f"new{number}": tool(f"Does thing {number}.") for number in range(5_000)}
    renames = suspect_renames(vanished, appeared)
    assert len(renames) == 5_000
    assert all(rename.old[3:] == rename.new[3:] for rename in renames)


def test_one_rename_is_found_among_thousands_of_new_tools() -> None:
    """A flood of new names does not hide it."""
    appeared = {f"aaa{number}": tool(f"Thing {number}", **{f"a{number}": "string"}) for number in range(3_000)}
    appeared["weather_now"] = {**WEATHER, "title": "Weather"}
    assert [rename.new for rename in suspect_renames({"weather": WEATHER}, appeared)] == ["weather_now"]


DOCUMENTS = st.dictionaries(
    st.text(max_size=6),
    st.none()
    | st.just("odd")
    | st.builds(tool, st.text(max_size=8), a=st.sampled_from(["string", "number"]))
    | st.fixed_dictionaries({"description": st.integers(), "inputSchema": st.just([])}),
    max_size=6,
)


@given(vanished=DOCUMENTS, appeared=DOCUMENTS)
def test_no_tool_is_in_two_pairs(vanished: dict[str, Any], appeared: dict[str, Any]) -> None:
    """Whatever the documents are."""
    renames = suspect_renames(vanished, appeared)
    assert len({rename.old for rename in renames}) == len(renames) == len({rename.new for rename in renames})
    assert all(rename.old in vanished and rename.new in appeared and 0 < rename.likeness <= 1 for rename in renames)
