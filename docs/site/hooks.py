"""Fill the generated parts of the documentation while it is built: every command, and every error code.

A page says where by a comment such as `<!-- generated: commands -->`.  Nothing generated is checked in.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import click

from quarterdeck.cli.diagnose.explain import fault_pages
from quarterdeck.cli.program import make_program

PROGRAM: Final = "quarterdeck"

MARKER: Final = re.compile(r"^<!-- generated: (.+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for each page: its text with the generated parts in place."""
    return fill(markdown)


def fill(markdown: str) -> str:
    """The text with each marker replaced by what it names.

    Raises:
        KeyError: a marker names nothing that is generated.
    """
    return MARKER.sub(lambda found: GENERATED[found[1]](), markdown)


def error_codes() -> str:
    """A section for each code of a fault: cause, remedy, example."""
    return "\n\n".join(
        f"## {code}\n\n{_escaped(page['cause'])}\n\n"
        f"- **Fix:** {_escaped(page['fix'])}\n- **Example:** {_shown(page['example'])}"
        for code, page in sorted(fault_pages().items())
    )


def commands() -> str:
    """A section for each command, its help as a terminal shows it."""
    return "\n\n".join(
        f"### {context.command_path}\n\n```text\n{click.unstyle(context.get_help())}\n```"
        for context in every_command(click.Context(make_program(), info_name=PROGRAM))
    )


def every_command(parent: click.Context) -> Iterator[click.Context]:
    """Each command below one, groups before what they hold, by name."""
    group = parent.command
    assert isinstance(group, click.Group)
    for name, command in sorted(group.commands.items()):
        context = click.Context(command, info_name=name, parent=parent)
        yield context
        if isinstance(command, click.Group):
            yield from every_command(context)


def _shown(example: str) -> str:
    """A sentence as text, what is typed as code."""
    return _escaped(example) if example.endswith(".") else f"`{example}`"


def _escaped(text: str) -> str:
    """Plain text as Markdown: angle brackets and stars stay what they are."""
    return re.sub(r"([<>*_\[\]])", r"\\\1", text)


GENERATED: Final[dict[str, Callable[[], str]]] = {"commands": commands, "error codes": error_codes}
