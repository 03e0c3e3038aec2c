"""Names of native tools and of their profiles, for modules that need not load the tools.  Pure.

A test holds them against the catalogue.
"""

from enum import StrEnum
from typing import Final


class Profile(StrEnum):
    """A named set of capabilities.

    The names are inverted on purpose, and stay so: `authoring` observes only.
    """

    AUTHORING = "authoring"
    """The read-only built-ins."""

    SURVEY = "survey"
    """Every built-in, mutating ones included."""

    ALL = "all"
    """Every built-in and every app card."""


NATIVE_NAMES: Final = frozenset(
    {
        *("read", "ls", "grep", "find", "websearch", "webfetch", "todo_read"),
        *("write", "edit", "bash", "process", "todo_set"),
        *("todo", "bg-process", "task", "saas-action", "memory", "enter_plan_mode", "exit_plan_mode"),
    }
)
"""Reserved for them: what a server offers may not look like one."""
