"""What native tools are called, for those who must know the names without loading the tools.  Pure.

A test holds them against the catalogue.
"""

from typing import Final

NATIVE_NAMES: Final = frozenset(
    {
        *("read", "ls", "grep", "find", "websearch", "webfetch", "todo_read"),
        *("write", "edit", "bash", "process", "todo_set"),
        *("todo", "bg-process", "task", "saas-action", "memory", "enter_plan_mode", "exit_plan_mode"),
    }
)
"""Reserved for them: what a server offers may not look like one."""
