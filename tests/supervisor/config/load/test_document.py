"""JSON with errors that a person can find."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarterdeck.config.load.document import (
    MAX_DEPTH,
    DocumentError,
    JsonObject,
    claimed_id,
    describe_unknown_keys,
    parse_document,
    pointer,
    read_allowed_env,
    rows_of,
)
from quarterdeck.config.load.problems import RowError

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("  \n\t", "the file is empty"),
        ('{"a": 1,\n  // mine\n "b": 2}', "line 2, column 3: comments are not JSON: remove them"),
        ('{/* mine */ "b": 2}', "line 1, column 2: comments are not JSON: remove them"),
        ('{"a": 1\n', "line 2, column 1: the text ends before the JSON does"),
        ("{'a': 1}", "line 1, column 2: JSON strings take double quotes"),
        ('{"a": 1 "b": 2}', "line 1, column 9: expecting ',' delimiter"),
        ("]", "line 1, column 1: expecting value"),
        ('{"a": 1} {}', "line 1, column 10: extra data"),
        ("[" * 100_000, f"nested deeper than {MAX_DEPTH} levels"),
        ('{"a":' * 100_000, f"nested deeper than {MAX_DEPTH} levels"),
        ("[" * 65 + "]" * 65, f"nested deeper than {MAX_DEPTH} levels"),
        ('{"a":' * 65 + "1" + "}" * 65, f"nested deeper than {MAX_DEPTH} levels"),
        ('{"a": 1, "a":' + "[" * 70 + "]" * 70 + "}", f"nested deeper than {MAX_DEPTH} levels"),
    ],
)
def test_bad_json_says_where_and_what(text: str, message: str) -> None:
    """A user would hunt for a comma in a file of a hundred lines."""
    with pytest.raises(DocumentError) as caught:
        parse_document(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ['{"a": 1,\n}', '{"a": [1,\n]}'])
def test_a_trailing_comma_is_called_by_its_name(text: str) -> None:
    """Editors of other clients accept one, so that it is the commonest mistake in a copied file."""
    with pytest.raises(DocumentError, match=r"^line [12], column \d+: .*(comma before|trailing comma)"):
        parse_document(text)


def test_the_deepest_legal_nesting_is_read() -> None:
    """An off-by-one would refuse what the message allows."""
    assert parse_document("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None


def test_a_key_given_twice_keeps_its_first_value_and_reports_the_rest() -> None:
    """A pasted second server of the same name would silently replace the first."""
    value = parse_document('{"a": 1, "b": 2, "a": 3, "a": 4}')
    assert isinstance(value, JsonObject)
    assert (dict(value), value.repeated) == ({"a": 1, "b": 2}, (("a", 3), ("a", 4)))


@pytest.mark.parametrize("digits", ["1" * 5000, "-" + "1" * 5000])
def test_an_integer_of_thousands_of_digits_is_no_crash(digits: str) -> None:
    """Python refuses to convert it with an error of a kind that nobody expects."""
    assert abs(float(str(parse_document(digits)))) == float("inf")


@given(JSON_VALUES)
def test_every_json_value_is_read_as_it_was_written(value: object) -> None:
    """A configuration would mean something else than its text."""
    assert parse_document(json.dumps(value)) == value


@given(st.text())
def test_any_text_is_a_value_or_an_error(text: str) -> None:
    """A stray exception would end the program with a traceback."""
    with suppress(DocumentError):
        parse_document(text)


def read(document: object) -> JsonObject:
    value = parse_document(document if isinstance(document, str) else json.dumps(document))
    assert isinstance(value, JsonObject)
    return value


def test_rows_have_a_place_for_people_and_one_for_programs() -> None:
    """An editor could not jump to the row that `config check` complains of."""
    document = read('{"mcpServers": {"a/b~c": {}, "d": {}, "d": {}}, "servers": [{}]}')
    assert [(row.location, row.pointer, row.is_repeated) for row in rows_of(document)] == [
        ("mcpServers['a/b~c']", "/mcpServers/a~1b~0c", False),
        ("mcpServers.d", "/mcpServers/d", False),
        ("mcpServers.d#2", "/mcpServers/d", True),
        ("servers[0]", "/servers/0", False),
    ]
    assert pointer() == ""


@pytest.mark.parametrize("key", ["mcpServers", "servers", "native", "trust", "allow_project_env"])
def test_each_key_of_ours_makes_a_file_ours_and_may_be_there_once(key: str) -> None:
    """A file that only opens a variable to projects would be refused, or a second `trust` silently lost."""
    assert describe_unknown_keys(read({key: {}})) == ""
    with pytest.raises(DocumentError, match="appears more than once"):
        describe_unknown_keys(read(f'{{"{key}": {{}}, "{key}": {{}}}}'))


def test_a_key_that_is_almost_ours_is_told_with_the_right_one() -> None:
    """`"allow_project_envs"` would do nothing, and nobody say why."""
    said = describe_unknown_keys(read({"servers": [], "allow_project_envs": [], "globalShortcut": ""}))
    assert said == "ignored: 'allow_project_envs' (did you mean 'allow_project_env'?), 'globalShortcut'"


def test_every_row_lays_claim_to_its_name_however_wrong_it_is() -> None:
    """A project could take the name of a server that the user has switched off or misspelt."""
    document = read({"mcpServers": {"off": {"disabled": True}, "null": None, "my fs": {"x": 1}}, "servers": [{}, 5]})
    assert [claimed_id(row) for row in rows_of(document)] == ["off", "null", "my-fs", None, None]


def test_allowed_variables_are_names() -> None:
    """A wrong entry would open nothing, or everything."""
    assert read_allowed_env(read({"allow_project_env": ["A", "B"]})) == {"A", "B"}
    assert read_allowed_env(read({})) == frozenset()
    for wrong in ("A", [5], [""], ["A=b"], {"A": 1}):
        with pytest.raises(RowError, match=r"^allow_project_env"):
            read_allowed_env(read({"allow_project_env": wrong}))
