"""`quarterdeck explain`: the page of each code that an error is printed with; `explanations.toml` has the texts."""

import tomllib
from importlib import resources
from typing import Annotated

from quarterdeck.cli import options
from quarterdeck.cli.exits import MEANINGS, ExitCode, NotFoundError
from quarterdeck.cli.output import Cell, Column, print_json, print_line, print_paragraph, show
from quarterdeck.cli.parameters import Argument
from quarterdeck_protocol.faults import REMEDIES
from quarterdeck_protocol.names import did_you_mean


def fault_pages() -> dict[str, dict[str, str]]:
    """Return the page of each fault code: cause, fix and example."""
    return {
        code: {"code": code, "cause": found["cause"], "fix": REMEDIES[code], "example": found["example"]}
        for code, found in _texts()["faults"].items()
    }


def exit_pages() -> dict[str, dict[str, str]]:
    """Return the page of each exit code that an error is printed with, by its name."""
    return {
        name: {"code": name, "meaning": MEANINGS[ExitCode[name.upper()]], **found}
        for name, found in _texts()["exits"].items()
    }


def _texts() -> dict[str, dict[str, dict[str, str]]]:
    return tomllib.loads(resources.files(__package__).joinpath("explanations.toml").read_text("utf-8"))


def explain(
    code: Annotated[str | None, Argument(metavar="CODE", help="The code in error[…].")] = None,
    json: options.Json = False,
) -> None:
    """Explain an error's code: cause, remedy, example.  Without one, list them all."""
    faults = fault_pages()
    if code is None:
        pages = list(faults.values())
        show(pages, (Column("CODE", "code", "cyan"), Column("CAUSE", "cause")), json=json, document={"codes": pages})
        return
    name = code.strip().removeprefix("error[").removesuffix("]").lower()
    exits = exit_pages()
    page = faults.get(name) or exits.get(name)
    if page is None:
        hint = did_you_mean(name, (*faults, *exits))
        raise NotFoundError(f"there is no code {code!r}{hint}", "quarterdeck explain lists them")
    number = ExitCode[name.upper()] if name in exits else None
    if json:
        print_json(page if number is None else {**page, "exit_code": number})
        return
    print_line(name, "bold")
    for title in ("meaning", "cause", "fix", "example"):
        if title in page:
            print_paragraph(page[title], lead=Cell(f"  {title + ':':<9}"))
    if number is not None:
        print_line(f"  exit code {number:d}: quarterdeck help exit-codes lists them all")
