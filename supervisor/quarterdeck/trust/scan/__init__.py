"""The poisoning scan: does a definition describe a tool, or does it try to rule the model?

`texts` gathers what a model may read, `disguises` decodes it, `phrases` and `tool_names` are what it is held against,
`rules` is the table and the walk.  A finding is no proof, and neither is its absence.  Pure.
"""

from .rules import RULES, SCAN_VERSION, Finding, scan_definition
from .tool_names import KnownNames

__all__ = ["RULES", "SCAN_VERSION", "Finding", "KnownNames", "scan_definition"]
