"""One member of a JSON text changes, and nothing else does."""

import json
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.config.load.document import DocumentError
from quarterdeck.config.load.jsonc import parse, remove_member, set_member, to_plain
from quarterdeck.config.load.text_edit import EditError

ENTRY: Final = {"command": "/bin/quarterdeck", "args": ["serve"]}

KEYS: Final = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(["a", "mcpServers", "b", "//", '"'])

VALUES: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from(["", "x", "// no", "/* no */", ",]", 'a"b\\', "ü"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=5,
)

BLANKS: Final = st.sampled_from(["", " ", "\n", "\n  ", "\r\n\t", '// a comment, "quoted": {\n', "/* b, */", " /**/ "])


@st.composite
def texts(draw: st.DrawFn, value: object) -> str:
    """`value` as somebody may have typed it: any layout, comments, trailing commas."""

    def blank() -> str:
        return draw(BLANKS)

    if isinstance(value, dict):
        members = [f"{json.dumps(key)}{blank()}:{blank()}{draw(texts(member))}" for key, member in value.items()]
    elif isinstance(value, list):
        members = [draw(texts(member)) for member in value]
    else:
        return json.dumps(value)
    brackets = "{}" if isinstance(value, dict) else "[]"
    body = ",".join(f"{blank()}{member}{blank()}" for member in members) or blank()
    if members and draw(st.booleans()):
        body += "," + blank()
    return f"{brackets[0]}{body}{brackets[1]}"


@st.composite
def documents(draw: st.DrawFn) -> tuple[dict[str, object], str]:
    value = draw(st.dictionaries(KEYS, VALUES, max_size=3))
    if draw(st.booleans()):
        value["mcpServers"] = draw(st.dictionaries(KEYS, VALUES, max_size=3))
    return value, draw(BLANKS) + draw(texts(value)) + draw(BLANKS)


def is_within(small: str, large: str) -> bool:
    """Whether all of `small` is in `large`, in its order."""
    rest = iter(large)
    return all(character in rest for character in small)


def squeezed(text: str) -> str:
    return "".join(text.split())


@given(documents())
def test_comments_and_trailing_commas_change_no_value(document: tuple[dict[str, object], str]) -> None:
    """A string that looks like a comment would lose its end, or a position would point elsewhere."""
    value, text = document
    assert parse(text, has_comments=True) == value
    assert len(to_plain(text)) == len(text)
    assert json.loads(to_plain(text)) == value


@given(documents(), st.sampled_from(["mcpServers", "servers"]))
def test_a_member_is_added_and_every_character_stays(document: tuple[dict[str, object], str], section: str) -> None:
    """A user's comments, order or layout would be gone from a file that they wrote by hand."""
    value, text = document
    inside = value.get(section, {})
    if not isinstance(inside, dict) or "quarterdeck" in inside:
        return
    edited = set_member(text, (section, "quarterdeck"), ENTRY, has_comments=True)
    assert parse(edited, has_comments=True) == value | {section: inside | {"quarterdeck": ENTRY}}
    assert is_within(squeezed(text), squeezed(edited))
    if section in value:
        removed = remove_member(edited, (section, "quarterdeck"), has_comments=True)
        assert squeezed(removed) == squeezed(text)


@given(documents(), st.sampled_from([None, 2, 4, "\t"]))
def test_what_was_added_is_removed_to_the_byte(
    document: tuple[dict[str, object], str], indent: int | str | None
) -> None:
    """A file under version control would differ after unlinking what was linked."""
    value, _ = document
    for key, inside in value.items():
        if isinstance(inside, dict) and "quarterdeck" not in inside:
            text = json.dumps(value, indent=indent, ensure_ascii=False)
            edited = set_member(text, (key, "quarterdeck"), ENTRY, has_comments=False)
            assert remove_member(edited, (key, "quarterdeck"), has_comments=False) == text


@given(documents())
def test_a_member_is_removed_and_all_others_stay(document: tuple[dict[str, object], str]) -> None:
    """Unlinking would take a neighbour along, or leave a comma that the client does not read."""
    value, text = document
    for key in value:
        edited = remove_member(text, (key,), has_comments=True)
        assert parse(edited, has_comments=True) == {other: value[other] for other in value if other != key}
        assert is_within(edited, text)


@given(documents())
def test_a_member_is_replaced_where_it_is(document: tuple[dict[str, object], str]) -> None:
    """Linking again would move the entry about, or double it."""
    value, text = document
    for key in value:
        edited = set_member(text, (key,), ENTRY, has_comments=True)
        assert list(parse(edited, has_comments=True).items()) == [
            (other, ENTRY if other == key else member) for other, member in value.items()
        ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{\n  "a": {\n    "x": 1\n  }\n}\n', '{\n  "a": {\n    "x": 1,\n    "n": {\n      "c": 1\n    }\n  }\n}\n'),
        ('{"a": {"x": 1}}', '{"a": {"x": 1, "n": {"c": 1}}}'),
        ('{"a": {}}', '{"a": {"n": {"c": 1}}}'),
        ("{}", '{\n  "a": {\n    "n": {\n      "c": 1\n    }\n  }\n}'),
        ("", '{\n  "a": {\n    "n": {\n      "c": 1\n    }\n  }\n}\n'),
        ('{\r\n\t"a": {}\r\n}', '{\r\n\t"a": {\r\n\t\t"n": {\r\n\t\t\t"c": 1\r\n\t\t}\r\n\t}\r\n}'),
        (
            '{\n    "a": {\n        "x": 1, // one\n        // two\n    },\n}',
            (
                '{\n    "a": {\n        "x": 1, // one\n        // two\n'
                '        "n": {\n            "c": 1\n        },\n    },\n}'
            ),
        ),
    ],
)
def test_a_new_member_looks_like_its_neighbours(text: str, expected: str) -> None:
    """A file would be read by its program, but no longer by its owner."""
    assert set_member(text, ("a", "n"), {"c": 1}, has_comments=True) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}', "'a' is not an object"),
        ('{"a": null}', "'a' is not an object"),
        ('{"a": {}, "a": {}}', "more than once"),
        ('{"a": {"n": 1, "n": 2}}', "more than once"),
    ],
)
def test_a_text_of_which_it_is_not_clear_what_it_means_is_not_changed(text: str, message: str) -> None:
    """A program that takes the other one of two would not see the change, or lose something."""
    with pytest.raises(EditError, match=message):
        set_member(text, ("a", "n"), 1, has_comments=True)


@pytest.mark.parametrize("text", ['{"a": 1', "[]", "{'a': 1}", '{"a": 1} /* open', '{"a": ,}', "{,}", '{"a": /*/ 1}'])
def test_what_is_no_object_is_refused(text: str) -> None:
    """A file that its own program cannot read would be made to look well."""
    for edit in (lambda: set_member(text, ("a",), 1, has_comments=True), lambda: parse(text, has_comments=True)):
        with pytest.raises(DocumentError):
            edit()


def test_comments_are_refused_where_the_client_knows_none() -> None:
    """Its user would see quarterdeck linked, and the client would not read the file at all."""
    with pytest.raises(DocumentError, match="comments are not JSON"):
        set_member('{"a": 1} // x', ("b",), 1, has_comments=False)


def test_a_name_that_is_no_text_is_refused() -> None:
    """Writing the file would fail half way."""
    with pytest.raises(EditError, match="not Unicode text"):
        set_member("{}", ("a",), "\udcff", has_comments=False)


def test_a_member_that_is_not_there_cannot_be_removed() -> None:
    """A mistyped name would be told as done."""
    for path in (("b",), ("a", "b")):
        with pytest.raises(EditError, match="there is no 'b'"):
            remove_member('{"a": {}}', path, has_comments=False)
