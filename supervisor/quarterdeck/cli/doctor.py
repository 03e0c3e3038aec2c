"""`quarterdeck doctor`: what this machine can enforce, found by trying, and what to do about each gap."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import typer

from quarterdeck.cli import options
from quarterdeck.cli.output import Cell, print_json, print_line, print_table
from quarterdeck.cli.text import printable

if TYPE_CHECKING:
    from quarterdeck_sandbox.doctor import Diagnosis, Line, SelfTest
    from quarterdeck_sandbox.machine import Machine

STYLES: Final = {"ok": "green", "weaker": "yellow", "missing": "bold red"}

VERDICTS: Final = {
    0: "Everything is enforced in full.",
    1: "Servers run confined; what is weaker is named above.",
    2: "Servers do not run confined on this machine.",
}
"""What the exit code says, in words."""


def doctor(json: options.Json = False) -> None:
    """Find out what this machine can enforce, by trying it and by attacking a sandbox of it.

    Exit codes: 0 everything in full, 1 something is weaker, 2 servers cannot be run confined.
    """
    from quarterdeck_sandbox.doctor import diagnose

    machine, test = examine()
    diagnosis = diagnose(machine, test)
    if json:
        print_json({"exit_code": diagnosis.exit_code, **_document(diagnosis), "machine": _facts(machine)})
    else:
        print_diagnosis(diagnosis)
    if diagnosis.exit_code:
        raise typer.Exit(diagnosis.exit_code)


def examine() -> "tuple[Machine, SelfTest]":
    """The facts of this machine, and what its sandboxes hold; about half a second."""
    import anyio

    from quarterdeck_sandbox.probing import known_machine
    from quarterdeck_sandbox.self_test import self_test

    machine = known_machine()
    return machine, anyio.run(self_test, machine)


def print_diagnosis(diagnosis: "Diagnosis") -> None:
    """Three tables, the remedies, and the verdict."""
    for title, lines in (
        ("MECHANISM", diagnosis.mechanisms),
        ('STANDARD POLICY, BY "' + diagnosis.tier.upper() + '"', diagnosis.properties),
        ("SELF-TEST", diagnosis.attacks),
    ):
        print_table((title, "STATE", "WHAT"), [_row(line) for line in lines])
        print_line()
    for remedy, gaps in _by_remedy((*diagnosis.mechanisms, *diagnosis.properties, *diagnosis.attacks)).items():
        subjects = ", ".join(line.subject for line in gaps)
        print_line(f"{printable(subjects)}: {printable(gaps[0].what)}", STYLES[gaps[0].state])
        for text in remedy.splitlines():
            print_line(f"  {printable(text)}")
    from quarterdeck.kernel.extra import INSTALL, sentences

    if lacking := sentences():
        for sentence in lacking:
            print_line(printable(sentence), "yellow")
        print_line(f"  Install what they lack: {INSTALL}")
    print_line(VERDICTS[diagnosis.exit_code], ("green", "yellow", "bold red")[diagnosis.exit_code])


def _row(line: "Line") -> list[Cell]:
    return [Cell(printable(line.subject)), Cell(line.state, STYLES[line.state]), Cell(printable(line.what))]


def _by_remedy(lines: "Sequence[Line]") -> "dict[str, list[Line]]":
    """Those that say what to do, each remedy once."""
    found: dict[str, list[Line]] = {}
    for line in lines:
        if line.remedy:
            found.setdefault(line.remedy, []).append(line)
    return found


def _document(diagnosis: "Diagnosis") -> dict[str, object]:
    import dataclasses

    return dataclasses.asdict(diagnosis)


def _facts(machine: "Machine") -> dict[str, object]:
    import dataclasses

    facts = dataclasses.asdict(machine)
    facts["cgroups"]["legacy"] = sorted(machine.cgroups.legacy)
    return facts
