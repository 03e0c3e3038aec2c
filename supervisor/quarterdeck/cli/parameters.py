"""Declare a command's arguments and options in a function's annotations, and make click's command of them.

Declarations are plain values: importing a module of commands builds none.  Click converts values without pydantic,
which would double the time of a command that only asks a running serve.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from types import UnionType
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

import click
import msgspec

from .commands import PROGRAM, describe_command

F = TypeVar("F", bound=Callable[..., object])


class Option:
    """An option: `Annotated[int, Option("--lines", "-n", metavar="N")]`; by default named like its parameter."""

    def __init__(
        self,
        *names: str,
        metavar: str | None = None,
        help: str = "",  # noqa: A002  the word for it
        envvar: str | None = None,
        show_default: bool | str = True,
        min: int | None = None,  # noqa: A002
    ) -> None:
        self.names: Final = names
        self.metavar: Final = metavar
        self.help: Final = help
        self.envvar: Final = envvar
        self.show_default: Final = show_default
        self.min: Final = min


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    """An argument of a command, in the order of the function's parameters; with a default it can be left out."""

    metavar: str
    help: str = ""


class Combined(msgspec.Struct, frozen=True):
    """A parameter that `function` makes of options of its own: `Annotated[Source, Combined(source_of)]`.

    `defaults` replace the function's; the options of `without` are not offered.
    """

    function: Callable[..., object]
    defaults: Mapping[str, object] = msgspec.field(default_factory=dict)
    without: frozenset[str] = frozenset()

    def take(self, values: dict[str, object]) -> object:
        """Return the function's result, taking its options out of `values`."""
        wanted = inspect.signature(self.function).parameters.keys() - self.without
        fixed = {name: value for name, value in self.defaults.items() if name in self.without}
        return self.function(**fixed, **{name: values.pop(name) for name in wanted})


class Group(msgspec.Struct, frozen=True):
    """The commands behind one word, such as `trust`; after the first argument of a `verbatim` one options end."""

    help: str
    functions: dict[str, Callable[..., object]] = msgspec.field(default_factory=dict)
    verbatim: set[str] = msgspec.field(default_factory=set)

    def command(self, name: str, *, verbatim: bool = False) -> Callable[[F], F]:
        """Add the decorated function as a command."""

        def add(function: F) -> F:
            self.functions[name] = function
            if verbatim:
                self.verbatim.add(name)
            return function

        return add


HAS_DASHES: Final = f"{__name__}.has_dashes"
"""In a context's `meta`: whether its command line has `--`, of which click leaves no trace."""


class HelpfulCommand(click.Command):
    """A command with our help in place of click's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note whether there are dashes, then parse as click does."""
        ctx.meta[HAS_DASHES] = "--" in args
        return super().parse_args(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write its help."""
        formatter.write(describe_command(self, *_usage(ctx, self.collect_usage_pieces(ctx))))


class HelpfulGroup(click.Group):
    """A group of commands with our help in place of click's."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write its help."""
        formatter.write(describe_command(self, *_usage(ctx, ["COMMAND [OPTIONS]"])))


def make_group(name: str, group: Group) -> HelpfulGroup:
    """Return the group for click."""
    commands = [
        make_command(each, function, verbatim=each in group.verbatim) for each, function in group.functions.items()
    ]
    return HelpfulGroup(name, commands, help=group.help)


def make_command(name: str, function: Callable[..., object], *, verbatim: bool = False) -> HelpfulCommand:
    """Return the command that calls `function` with what its annotations declare."""
    combined: dict[str, Combined] = {}

    def call(**values: object) -> object:
        return function(**{name: each.take(values) for name, each in combined.items()}, **values)

    return HelpfulCommand(
        name,
        callback=call,
        params=list(_parameters(function, Combined(function), combined)),
        help=inspect.getdoc(function),
        context_settings={"allow_interspersed_args": not verbatim},
    )


def _parameters(
    function: Callable[..., object], taken: Combined, combined: dict[str, Combined]
) -> Iterator[click.Parameter]:
    hints = get_type_hints(function, include_extras=True)
    for each in inspect.signature(function).parameters.values():
        annotation, declared = get_args(hints[each.name])
        if isinstance(declared, Combined):
            combined[each.name] = declared
            yield from _parameters(declared.function, declared, combined)
        elif each.name not in taken.without:
            default = taken.defaults.get(each.name, each.default)
            yield _parameter(each.replace(default=default), annotation, declared)


class _ValueChoice(click.Choice[StrEnum]):
    """Members of an enumeration, typed as their values."""

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        """Return the value, which is what users type; a member's name is for programs."""
        return super().normalize_choice(choice.value if isinstance(choice, StrEnum) else choice, ctx)


class _ExplainedArgument(click.Argument):
    """An argument that the help explains as it does options."""

    def __init__(self, name: str, declared: Argument, **settings: Any) -> None:
        super().__init__([name], metavar=declared.metavar, **settings)
        self.help = declared.help
        self.show_default = True

    def make_metavar(self, ctx: click.Context) -> str:
        """Return the name, in brackets if it can be left out."""
        shown = super().make_metavar(ctx)
        return shown if self.required else f"[{shown}]"


def _parameter(parameter: inspect.Parameter, annotation: Any, declared: Any) -> click.Parameter:
    kind, is_list = _kind_of(annotation)
    is_required = parameter.default is parameter.empty
    settings: dict[str, Any] = {"required": is_required}
    if is_list:
        settings["callback"] = lambda _, __, value: list(value) or None
    if not is_required:
        settings["default"] = parameter.default
    if isinstance(declared, Argument):
        return _ExplainedArgument(parameter.name, declared, type=_type_of(kind), nargs=-1 if is_list else 1, **settings)
    assert isinstance(declared, Option)
    return click.Option(
        [parameter.name, *(declared.names or [f"--{parameter.name.replace('_', '-')}"])],
        metavar=declared.metavar,
        help=declared.help,
        envvar=declared.envvar,
        show_default=declared.show_default,
        multiple=is_list,
        **({"is_flag": True} if kind is bool else {"type": _type_of(kind, least=declared.min)}),
        **settings,
    )


def _kind_of(annotation: Any) -> tuple[type, bool]:
    """Return the type of a value, and whether there may be several: `list[Path] | None` has several paths."""
    if isinstance(annotation, UnionType):
        annotation = next(each for each in get_args(annotation) if each is not type(None))
    if get_origin(annotation) is list:
        return get_args(annotation)[0], True
    return annotation, False


def _type_of(kind: type, *, least: int | None = None) -> click.ParamType[Any] | type:
    if issubclass(kind, StrEnum):
        return _ValueChoice(kind)
    if kind is Path:
        return click.Path(path_type=Path)
    if least is not None:
        return click.FloatRange(min=least) if kind is float else click.IntRange(min=least)
    return kind


def _usage(ctx: click.Context, pieces: list[str]) -> tuple[str, str]:
    return ctx.command_path.removeprefix(PROGRAM).strip(), " ".join(piece.strip("{}") for piece in pieces)
