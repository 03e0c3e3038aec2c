"""What a bench found and how it stands against its target.  Values only."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Final, Self


class Verdict(StrEnum):
    """How a figure stands; one without a goal can only be as required."""

    GOAL = "goal"
    MET = "met"
    MISSED = "missed"


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure must reach, and what we would like it to reach.

    Attributes:
        more_is_better: the figure must be at least, not at most, as large.
    """

    required: float
    goal: float | None = None
    more_is_better: bool = False

    def judge(self, figure: float) -> Verdict:
        if not self._is_reached(self.required, figure):
            return Verdict.MISSED
        return Verdict.GOAL if self.goal is not None and self._is_reached(self.goal, figure) else Verdict.MET

    @property
    def sign(self) -> str:
        """How the figure must compare."""
        return "≥" if self.more_is_better else "≤"

    def _is_reached(self, limit: float, figure: float) -> bool:
        return figure >= limit if self.more_is_better else figure <= limit


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table.

    Attributes:
        measure: what was measured.
        unit: of `ours` and `reference`.
        reference: what ours is compared with, None where the target is absolute.
        ratio: what is judged when it is there, else `ours` is.
        note: what else a reader should know.
    """

    measure: str
    unit: str
    target: Target
    ours: float
    reference: float | None = None
    ratio: float | None = None
    note: str = ""

    @classmethod
    def of_rounds(
        cls, measure: str, unit: str, target: Target, ours: Sequence[float], reference: Sequence[float], note: str = ""
    ) -> Self:
        """Judge the median of the rounds' ratios: a round's two samples had the same machine.

        Faster is a larger ratio only where the target says that more is better.
        """
        ratio = median(mine / other for mine, other in zip(ours, reference, strict=True))
        return cls(measure, unit, target, median(ours), median(reference), ratio, note)

    @property
    def verdict(self) -> Verdict:
        return self.target.judge(self.ours if self.ratio is None else self.ratio)

    @property
    def target_unit(self) -> str:
        return self.unit if self.ratio is None else TIMES


TIMES: Final = "×"
"""The unit of a ratio."""


class NotMeasuredError(Exception):
    """A bench that cannot run here; says why."""
