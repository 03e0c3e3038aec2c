"""`quarterdeck inspect`: what confines one server, what it may use, what it uses, how it last died."""

import shlex
from collections.abc import Iterator
from typing import Annotated, Final

import msgspec

from quarterdeck.cli.run.servers import STYLES, print_fault
from quarterdeck.cli.shared import options
from quarterdeck.cli.shared.output import Cell, print_json, print_line, print_table
from quarterdeck.cli.shared.parameters import Argument
from quarterdeck.cli.shared.source import AskedQuietly, ask
from quarterdeck.common.words import duration, printable, size
from quarterdeck.control.protocol import Inspect, Inspection, LimitView, PropertyView, ReceiptView

STRENGTHS: Final = {"full": "green", "partial": "yellow", "none": "bold red"}

LABEL_WIDTH: Final = 9

_UNITS: Final = {"bytes": lambda value: size(int(value)), "s": duration}
"""How a limit's number is shown, by the last part of its name."""


def inspect(
    source: AskedQuietly,
    server: Annotated[str, Argument(metavar="SERVER", help="Its id, as ps shows it.", show_default=False)],
    json: options.Json = False,
) -> None:
    """Show one server whole: command, policy, what confines it, each limit with its use, and its last death."""
    answer = ask(source, Inspect(server), only=server, anywhere=True)
    assert isinstance(answer, Inspection)
    if json:
        print_json(answer)
    else:
        print_inspection(answer)


def print_inspection(found: Inspection) -> None:
    """All of it, for people."""
    server = found.server
    print_line(f"{printable(server.id)} is {server.phase}", STYLES.get(server.phase, ""))
    if found.command:
        _print_fact("command", shlex.join(found.command))
    if found.receipt is not None:
        _print_fact("program", found.receipt.program)
        _print_fact("cwd", found.receipt.cwd)
    if server.pid is not None:
        _print_fact("pid", str(server.pid))
    if (policy := describe_policy(bytes(found.policy))) is not None:
        _print_fact("policy", policy)
    if found.note:
        _print_fact("sandbox", found.note)
    if found.receipt is not None:
        _print_receipt(found.receipt)
    if found.limits:
        print_line()
        print_table(["LIMIT", "AT MOST", "NOW", "PEAK", "KEPT BY"], [_limit_row(limit) for limit in found.limits])
    if found.last_death is not None:
        print_line()
        print_fault(found.last_death, of=server.id)


def describe_policy(policy: bytes) -> str | None:
    """What a policy says, its limits and all that is empty left out; None without one."""
    told = msgspec.json.decode(policy, type=dict[str, object] | None)
    if told is None:
        return None
    return "; ".join(_describe_entries({key: value for key, value in told.items() if key != "limits"}))


def _describe_entries(told: dict[str, object]) -> Iterator[str]:
    for key, value in told.items():
        if isinstance(value, list) and value:
            yield f"{key} {', '.join(map(str, value))}"
        elif not isinstance(value, list) and value is not None:
            yield f"{key} {value}"


def _print_receipt(receipt: ReceiptView) -> None:
    user = {None: "", 0: " as root without capabilities"}.get(receipt.uid, f" as user {receipt.uid}")
    _print_fact("sandbox", f"{receipt.tier}{user}")
    _print_fact("network", receipt.network)
    print_line()
    print_table(["PROPERTY", "STRENGTH", "MECHANISM"], [_property_row(each) for each in receipt.properties])
    for title, lines in (("shown beyond the system:", receipt.shown), ("weaker than wanted:", receipt.gaps)):
        if lines:
            print_line()
            print_line(title, "bold")
            for line in lines:
                print_line(f"  {printable(line)}")


def _property_row(found: PropertyView) -> list[Cell]:
    return [
        Cell(printable(found.name)),
        Cell(found.strength, STRENGTHS.get(found.strength, "")),
        Cell(printable(found.mechanism)),
    ]


def _limit_row(limit: LimitView) -> list[Cell]:
    numbers = [_describe_number(limit.name, value) for value in (limit.most, limit.present, limit.peak)]
    return [Cell(limit.name), *map(Cell, numbers), Cell(limit.kept_by)]


def _describe_number(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    unit = _UNITS.get(name.rpartition("_")[2])
    return unit(value) if unit is not None else f"{value:,g}"


def _print_fact(label: str, text: str) -> None:
    print_line(f"{label:{LABEL_WIDTH}}{printable(text)}")
