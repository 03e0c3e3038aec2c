"""The top of a configuration document."""

import json

import pytest

from quarterdeck.config.load.document import DocumentError, JsonObject, parse_document
from quarterdeck.config.load.problems import RowError
from quarterdeck.config.load.sections import claimed_id, pointer, read_allowed_env, read_trust, rows_of, strangers
from quarterdeck_protocol.configs import TrustMode


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
    assert strangers(read({key: {}})) == ""
    with pytest.raises(DocumentError, match="appears more than once"):
        strangers(read(f'{{"{key}": {{}}, "{key}": {{}}}}'))


def test_a_key_that_is_almost_ours_is_told_with_the_right_one() -> None:
    """`"allow_project_envs"` would do nothing, and nobody say why."""
    said = strangers(read({"servers": [], "allow_project_envs": [], "globalShortcut": ""}))
    assert said == "ignored: 'allow_project_envs' (did you mean 'allow_project_env'?), 'globalShortcut'"


def test_every_row_lays_claim_to_its_name_however_wrong_it_is() -> None:
    """A project could take the name of a server that the user has switched off or misspelt."""
    document = read({"mcpServers": {"off": {"disabled": True}, "null": None, "my fs": {"x": 1}}, "servers": [{}, 5]})
    assert [claimed_id(row) for row in rows_of(document)] == ["off", "null", "my-fs", None, None]


def test_trust_is_one_of_three_words() -> None:
    """A typing error would loosen what a user wanted strict."""
    assert [read_trust(read(each)) for each in ({}, {"trust": None}, {"trust": "strict"})] == [
        None,
        None,
        TrustMode.STRICT,
    ]
    for wrong in ("strct", 5, ["strict"]):
        with pytest.raises(RowError, match=r"^trust: must be 'baseline', 'strict', 'open'$"):
            read_trust(read({"trust": wrong}))


def test_allowed_variables_are_names() -> None:
    """A wrong entry would open nothing, or everything."""
    assert read_allowed_env(read({"allow_project_env": ["A", "B"]})) == {"A", "B"}
    assert read_allowed_env(read({})) == frozenset()
    for wrong in ("A", [5], [""], ["A=b"], {"A": 1}):
        with pytest.raises(RowError, match=r"^allow_project_env"):
            read_allowed_env(read({"allow_project_env": wrong}))
