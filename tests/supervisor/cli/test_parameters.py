"""What functions declare is what is parsed, typed and explained."""

import shlex
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import click
import pytest

from quarterdeck.cli.parameters import Argument, Combined, Group, Option, make_command, make_group


class Size(StrEnum):
    """Spelt otherwise than its members are called."""

    EXTRA_LARGE = "extra-large"
    SMALL = "small"


def parsed(function: Callable[..., object], *arguments: str) -> dict[str, Any]:
    return make_command("try", function).make_context("try", list(arguments)).params


def everything(
    name: Annotated[str, Argument(metavar="NAME")],
    more: Annotated[list[str] | None, Argument(metavar="MORE…")] = None,
    files: Annotated[list[Path] | None, Option("--file", "-f", envvar="TRY_FILES")] = None,
    size: Annotated[Size, Option()] = Size.SMALL,
    at_most: Annotated[int, Option(min=1)] = 10,
    share: Annotated[float | None, Option(min=0)] = None,
    loud: Annotated[bool, Option("--loud")] = False,
) -> None:
    """Try each kind of parameter."""


def test_a_function_gets_defaults_and_values_of_the_declared_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each function would have to tell an empty tuple from nothing, or a member from its name."""
    assert parsed(everything, "n") == {
        "name": "n",
        "more": None,
        "files": None,
        "size": Size.SMALL,
        "at_most": 10,
        "share": None,
        "loud": False,
    }
    words = shlex.split("n a b -f x --file y --size extra-large --at-most 3 --share .5 --loud")
    assert parsed(everything, *words) == {
        "name": "n",
        "more": ["a", "b"],
        "files": [Path("x"), Path("y")],
        "size": Size.EXTRA_LARGE,
        "at_most": 3,
        "share": 0.5,
        "loud": True,
    }
    monkeypatch.setenv("TRY_FILES", "/a:/b")
    assert parsed(everything, "n")["files"] == [Path("/a"), Path("/b")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Missing argument 'NAME'"),
        (("n", "--size", "EXTRA_LARGE"), "'extra-large', 'small'"),
        (("n", "--at-most", "0"), "not in the range"),
        (("n", "--share", "half"), "not a valid float"),
        (("n", "--share", "-0.1"), "not in the range"),
        (("n", "--no-loud"), "No such option"),
    ],
)
def test_what_does_not_fit_is_refused(words: tuple[str, ...], said: str) -> None:
    """A function would meet a value that it cannot use."""
    with pytest.raises(click.UsageError) as refused:
        parsed(everything, *words)
    assert said in refused.value.format_message()


def whole(
    files: Annotated[list[Path] | None, Option("--file")] = None, level: Annotated[str, Option()] = "info"
) -> tuple[str, ...]:
    return (level, *map(str, files or ()))


def test_several_options_make_one_value() -> None:
    """Each command would have to declare and to combine them itself."""
    seen: list[object] = []

    def command(
        what: Annotated[tuple[str, ...], Combined(whole, {"level": "error"})],
        loud: Annotated[bool, Option("--loud")] = False,
    ) -> None:
        seen.append((what, loud))

    made = make_command("try", command)
    assert [parameter.name for parameter in made.params] == ["files", "level", "loud"]
    made.main(["--file", "a", "--file", "b", "--loud"], standalone_mode=False)
    made.main(["--level", "debug"], standalone_mode=False)
    assert seen == [(("error", "a", "b"), True), (("debug",), False)]


def test_the_words_of_another_program_are_left_to_it() -> None:
    """`sandbox run` would take its command's options for its own."""
    group, ran = Group("Try."), list[list[str]]()

    @group.command("run", verbatim=True)
    def run(words: Annotated[list[str], Argument(metavar="-- WORDS…")]) -> None:
        ran.append(words)

    made = make_group("try", group)
    made.main(["run", "ls", "--help", "-l"], standalone_mode=False)
    made.main(["run", "--", "--version"], standalone_mode=False)
    assert ran == [["ls", "--help", "-l"], ["--version"]]
