"""The table in which a bench prints its findings: Markdown, nothing broken or cut."""

from collections.abc import Sequence
from typing import Final

from rich import box
from rich.table import Table

from .finding import Finding

COLUMNS: Final = ("measure", "ours", "reference", "ratio", "required", "goal", "verdict", "note")

LEFT_ALIGNED: Final = ("measure", "verdict", "note")

WIDTH: Final = 1000
"""Wide enough that nothing in the table is broken or cut, whatever a note says."""


def findings_table(findings: Sequence[Finding]) -> Table:
    table = Table(box=box.MARKDOWN)
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in LEFT_ALIGNED else "right", no_wrap=True)
    for finding in findings:
        target, unit = finding.target, finding.target_unit
        table.add_row(
            finding.measure,
            _quantity(finding.ours, finding.unit),
            _quantity(finding.reference, finding.unit),
            _quantity(finding.ratio, unit),
            f"{target.sign} {_quantity(target.required, unit)}",
            "" if target.goal is None else f"{target.sign} {_quantity(target.goal, unit)}",
            finding.verdict,
            finding.note,
        )
    return table


def _quantity(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{digits}{unit}" if unit == "×" else f"{digits} {unit}"
