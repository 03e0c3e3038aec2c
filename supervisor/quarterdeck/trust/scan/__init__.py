"""The poisoning scan: does a definition describe a tool, or does it try to rule the model?

`texts` gathers what a model may read, and `readings` what it says in an encoding; `hidden`, `words` with `phrases` and
`languages`, and `siblings` are what it is held against; `rules` is the table, and `scanning` the walk.  A finding is no
proof, and neither is its absence.
"""

from .rules import RULES, SCAN_VERSION, Finding, Rule, scan_definition
from .siblings import Siblings

__all__ = ["RULES", "SCAN_VERSION", "Finding", "Rule", "Siblings", "scan_definition"]
