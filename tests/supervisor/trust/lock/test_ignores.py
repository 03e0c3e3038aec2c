"""What of a definition may differ between machines."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.schemas.json_values import json_values

from quarterdeck.ledger.events.events import Subject
from quarterdeck.ledger.events.fold import ItemKey
from quarterdeck.trust.judge.documents import Document, hash_of, instructions_document
from quarterdeck.trust.lock.ignores import IGNORED, MAX_LINES, IgnoreError, Ignores

NOW = {
    "name": "now",
    "description": "The time in Europe/Paris",
    "inputSchema": {
        "type": "object",
        "properties": {"zone": {"type": "string", "default": "Europe/Paris"}, "a/b~c": {"default": 1}},
        "required": ["zone", "a/b~c"],
    },
    "icons": [{"src": "one"}, {"src": "two"}],
}


def tool(definition: object, name: str = "now") -> Document:
    body = json.dumps(definition).encode()
    return Document(ItemKey(Subject.TOOL, name), hash_of(body), body)


def form(lines: str, definition: object = NOW) -> str:
    return Ignores.parse(lines).form_of("time", tool(definition))


def without(*places: str) -> dict[str, Any]:
    """The tool without what stands at these places, `.` between two steps."""
    copy = json.loads(json.dumps(NOW))
    for place in places:
        *steps, last = place.split(".")
        parent = copy
        for step in steps:
            parent = parent[int(step) if step.isdigit() else step]
        del parent[int(last) if last.isdigit() else last]
    return copy


ZONES = "inputSchema.properties"


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        ("", NOW),
        ("# nothing\n\n   \n", NOW),
        ("time/now /description", without("description")),
        *((f"{name} /description", without("description")) for name in ("*/now", "t?me/*", "time/n[o]w")),
        *((f"{name} /description", NOW) for name in ("Time/now", "time/Now", "clock/*", "*/then")),
        ("time/now /inputSchema/properties/a~1b~0c", without(f"{ZONES}.a/b~c")),
        ("time/now /icons/1", without("icons.1")),
        ("time/now /inputSchema/properties/*/default", without(f"{ZONES}.zone.default", f"{ZONES}.a/b~c.default")),
        ("time/now /inputSchema/properties/*", without(f"{ZONES}.zone", f"{ZONES}.a/b~c")),
        ("time/now /icons/*/src", NOW | {"icons": [{}, {}]}),
        ("time/now /icons/*", NOW | {"icons": []}),
        ("time/now /description\ntime/* /icons\nother/* /name", without("description", "icons")),
        *((f"time/now {place}", NOW) for place in ("/nothing", "/icons/2", "/icons/-", "/icons/01", "/icons/x")),
        *((f"time/now {place}", NOW) for place in ("/name/0", "/icons/" + "9" * 5000, "/")),
    ],
)
def test_lines_leave_out_what_they_name_and_nothing_else(lines: str, left: dict[str, Any]) -> None:
    """A lock made in Paris would fail in Berlin; or a changed tool would pass it."""
    assert form(lines) == tool(left).hash


ALONE = {"capabilities": Subject.CAPABILITIES, "instructions": Subject.INSTRUCTIONS}
KINDS = {"prompts": Subject.PROMPT, "resources": Subject.RESOURCE, "templates": Subject.TEMPLATE}


def one(subject: Subject, name: str, definition: object = NOW) -> Document:
    body = json.dumps(definition).encode()
    return Document(ItemKey(subject, name), hash_of(body), body)


@pytest.mark.parametrize(("word", "subject"), [*KINDS.items(), *ALONE.items()])
def test_a_whole_kind_can_be_left_out_and_costs_no_other(word: str, subject: Subject) -> None:
    """A server whose resources are the files of the day could not be locked; or its tools would change unseen."""
    ignores = Ignores.parse(f"notes {word}")
    assert ignores.form_of("notes", one(subject, "note://1")) == IGNORED
    assert ignores.form_of("other", one(subject, "note://1")) != IGNORED
    others = [each for each in Subject if each is not subject]
    assert all(ignores.form_of("notes", one(each, "note://1")) == one(each, "").hash for each in others)


@pytest.mark.parametrize(("word", "subject"), KINDS.items())
def test_a_place_in_a_prompt_or_resource_is_named_as_in_a_tool(word: str, subject: Subject) -> None:
    """One date in one description would cost the whole kind."""
    left = one(subject, "x", {key: value for key, value in NOW.items() if key != "description"})
    ignores = Ignores.parse(f"time {word}/note://*/day  /description")
    assert ignores.form_of("time", one(subject, "note://a/day")) == left.hash
    assert ignores.form_of("time", one(subject, "note://a/night")) == one(subject, "").hash
    assert ignores.form_of("time", tool(NOW, "note://a/day")) == tool(NOW).hash, "a tool of this name is another thing"


def test_a_line_about_tools_says_nothing_of_instructions() -> None:
    """`*/*` would let instructions change unseen."""
    told = instructions_document("x")
    assert Ignores.parse("*/* /description").form_of("time", told) == told.hash


def test_what_cannot_be_read_keeps_the_hash_of_its_bytes() -> None:
    """A server could hide behind a line by sending what no reader reads."""
    body = b'{"description": "\\ud800"}'
    broken = Document(ItemKey(Subject.TOOL, "now"), hash_of(body), body)
    assert Ignores.parse("time/now /description").form_of("time", broken) == broken.hash


@pytest.mark.parametrize(
    ("line", "said"),
    [
        *((line, "write SERVER/TOOL") for line in ("time", "time/now", "time/now description", "time/ /description")),
        *((line, "write SERVER/TOOL") for line in ("/now /description", "time/now instructions")),
        *((line, "write SERVER/TOOL") for line in ("time /instructions", "time launch")),
        ("time tools", "prompts, resources, templates"),
        ("time prompts/", "SERVER prompts/NAME"),
        ("time prompts/today", "SERVER prompts/NAME"),
        ("time prompts/today description", "SERVER prompts/NAME"),
        ("time nothing/today /description", "SERVER prompts/NAME"),
        ("time/now /a~2", "~0"),
        ("time/now /a~", "~0"),
    ],
)
def test_a_line_that_says_nothing_is_named(line: str, said: str) -> None:
    """A user would believe that something is ignored, or seen, that is not."""
    with pytest.raises(IgnoreError, match=r"^line 3: ") as raised:
        Ignores.parse(f"# first\n\n{line}\n")
    assert said in str(raised.value)


def test_too_many_lines_are_refused() -> None:
    """A generated file would keep every command busy."""
    lines = "time/now /description\n" * MAX_LINES
    assert len(Ignores.parse(lines).lines) == MAX_LINES
    with pytest.raises(IgnoreError, match=f"line {MAX_LINES + 1}: "):
        Ignores.parse(lines + "time/now /title\n")


def test_the_lines_of_one_server_do_the_same_for_it() -> None:
    """A lock would be judged by other lines than it was written by."""
    ignores = Ignores.parse("time/now /description\nother/* /description\n*/* /icons")
    assert len(ignores.of("time").lines) == 2
    assert ignores.of("time").form_of("time", tool(NOW)) == ignores.form_of("time", tool(NOW))


PLACES = st.lists(st.sampled_from(["a", "b", "0", "1", "*", ""]), min_size=1, max_size=3)
VALUES = json_values(st.integers(0, 3), st.sampled_from(["a", "b", "0", "*"]))


@given(VALUES, st.lists(PLACES, max_size=3))
def test_whatever_is_ignored_has_a_form_and_the_document_stays_as_it_is(value: object, places: list[list[str]]) -> None:
    """A line could end a command, or change what is stored."""
    document = tool(value)
    body = bytes(document.body)
    lines = "\n".join("time/now /" + "/".join(place) for place in places)
    ignores = Ignores.parse(lines)
    assert ignores.form_of("time", document) == ignores.form_of("time", document)
    assert document.body == body
