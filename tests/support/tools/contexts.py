"""A context without files and commands, for tools that need neither."""

import sys
from typing import Final, NoReturn

from quarterdeck.tools.context import BackendUnavailableError, ToolContext, UnavailableShell
from quarterdeck.tools.results import BudgetKind, OutputBudget

UNLIMITED_BUDGET: Final = OutputBudget(BudgetKind.HEAD, sys.maxsize)
"""Nothing is cut."""


class UnavailableFs:
    """No files: every use raises `BackendUnavailableError`."""

    async def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise BackendUnavailableError("this context has no files")

    read_text = read_bytes = open_binary = write_file = stat = readdir = list_directory = _refuse
    real_path = mkdir = rm = exists = _refuse


def inert_context() -> ToolContext:
    """A context of an identity of its own, without files, commands or a limit of texts."""
    return ToolContext(cwd="/", fs=UnavailableFs(), shell=UnavailableShell(), budget=UNLIMITED_BUDGET)
