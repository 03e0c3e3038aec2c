"""What libraries say of a wrong value is said in our own words."""

import json
import re
from enum import StrEnum
from typing import Annotated

import click
import msgspec
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from quarterdeck_protocol.plain_words import plain_words

LEAKS = ("Value error", "Input ", "Expected `", "`", "Errno", "Expecting", "Invalid value", "Field required", "(char")
"""What only a library says."""


class Row(BaseModel):
    """As a row of a configuration is judged."""

    model_config = ConfigDict(extra="forbid")

    size: int = Field(default=1, ge=1)
    ratio: float = Field(default=0.5, lt=1)
    names: tuple[str, ...] = ()
    table: dict[str, str] = {}
    is_on: bool = False
    word: str = Field(default="x", pattern="^x$")

    @field_validator("names")
    @classmethod
    def _are_short(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(value) > 1:
            raise ValueError("are too many")
        return value


class Kind(StrEnum):
    """One of a list."""

    ONE = "one"


class Struct(msgspec.Struct, forbid_unknown_fields=True):
    """As a message is judged."""

    name: str
    count: Annotated[int, msgspec.Meta(ge=1)] | None = None
    kind: Kind = Kind.ONE


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"names": ["a", "b"]}, "names: are too many"),
        ({"size": "x"}, "size: must be a whole number"),
        ({"size": 0}, "size: must be greater than or equal to 1"),
        ({"ratio": 2}, "ratio: must be less than 1"),
        ({"table": 1}, "table: must be an object"),
        ({"names": 1}, "names: must be an array"),
        ({"is_on": "perhaps"}, "is_on: must be true or false"),
        ({"word": "y"}, "word: does not have the required form"),
        ({"more": 1}, "more: is not a known key"),
    ],
)
def test_pydantics_complaints_are_plain(row: dict[str, object], said: str) -> None:
    """A user would read `Value error,` or the name of a Python type."""
    with pytest.raises(ValidationError) as refused:
        Row.model_validate(row)
    assert plain_words(refused.value) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "expected an object, got an array"),
        ("{}", "the field 'name' is missing"),
        ('{"name": 1}', "expected a string, got a whole number at 'name'"),
        ('{"name": "x", "count": "y"}', "expected a whole number or null, got a string at 'count'"),
        ('{"name": "x", "more": 1}', "there is no field 'more'"),
        ('{"name"', "the JSON ends too early"),
        ("{name}", "wrong JSON at byte 1: object keys must be strings"),
    ],
)
def test_msgspecs_complaints_are_plain(text: str, said: str) -> None:
    """A user would read backquoted names of types that JSON does not have."""
    with pytest.raises(msgspec.DecodeError) as refused:
        msgspec.json.decode(text, type=Struct)
    assert plain_words(refused.value) == said


def test_what_is_wrong_with_json_has_its_line_and_column() -> None:
    """A user would have to count characters from the begin of the file."""
    with pytest.raises(json.JSONDecodeError) as refused:
        json.loads('{\n "a": }')
    assert plain_words(refused.value) == "wrong JSON at line 2, column 7: expected value"


def test_jsonschemas_complaints_are_plain() -> None:
    """A model would be told a type's name in quotes."""
    [error] = Draft202012Validator({"type": "array"}).iter_errors(3)
    assert plain_words(error.message) == "3 is not an array"


def test_the_operating_systems_errors_have_no_number() -> None:
    """A user would read `[Errno 2]`."""
    with pytest.raises(OSError) as refused:
        open("/no/such/file").close()
    assert plain_words(refused.value) == "/no/such/file: no such file or directory"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["x", "--count", "y"], "--count: 'y' is not a whole number"),
        (["x", "--wait", "y"], "--wait: 'y' is not a number"),
        (["x", "--wait", "-1"], "--wait: -1.0 is less than 0"),
        (["x", "--kind", "y"], "--kind: 'y' is not one of 'a', 'b'"),
        (["x", "--kind"], "--kind needs a value"),
        ([], "NAME is missing"),
        (["x", "y", "z"], "too many arguments: y z"),
        (["x", "--cuont", "1"], "there is no option --cuont: did you mean '--count'?"),
        (["x", "--nothing"], "there is no option --nothing"),
    ],
)
def test_clicks_complaints_are_plain(arguments: list[str], said: str) -> None:
    """A user would read `Invalid value for` and `float range`."""

    @click.command()
    @click.argument("name")
    @click.option("--count", type=click.IntRange(min=0))
    @click.option("--wait", type=click.FloatRange(min=0))
    @click.option("--kind", type=click.Choice(["a", "b"]))
    def command(**_: object) -> None:
        pass

    ended = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert isinstance(ended.exception, click.ClickException)
    assert plain_words(ended.exception.format_message().rstrip(".")) == said


def test_a_choice_that_is_missing_is_told_in_one_sentence() -> None:
    """A user would read `bash|zsh|fish is missing Choose from:`, and nothing after it."""

    @click.command()
    @click.argument("kind", type=click.Choice(["a", "b"]))
    def command(**_: object) -> None:
        pass

    ended = CliRunner().invoke(command, [], standalone_mode=False)
    assert isinstance(ended.exception, click.ClickException)
    assert re.fullmatch(r".*\ba\|b\b.* is missing", plain_words(ended.exception.format_message()))


def test_our_own_words_stay_as_they_are() -> None:
    """A message would change that no library made."""
    for text in ("", "entry [0] is not HOST:PORT", "the variable 'HOME' is not set: give it a default"):
        assert plain_words(text) == text
    assert not any(leak in plain_words("Value error, x") for leak in LEAKS)
