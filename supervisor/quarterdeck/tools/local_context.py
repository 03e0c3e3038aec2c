"""A context for tools that work on this machine's files, in one directory unless more is allowed."""

import os

from quarterdeck.config.places.private_homes import never_written
from quarterdeck.tools.files.fs import LocalFs
from quarterdeck.tools.files.roots import Roots, absolute
from quarterdeck_protocol.tools import CancelToken

from .context import Framework, Shell, ToolContext, UnavailableShell
from .overflow import Overflow
from .results import STANDARD_BUDGET, OutputBudget


def make_local_context(
    cwd: str | os.PathLike[str],
    cancel: CancelToken | None = None,
    budget: OutputBudget | None = None,
    framework: Framework | None = None,
    *,
    roots: Roots | None = None,
    shell: Shell | None = None,
    overflow: Overflow | None = None,
) -> ToolContext:
    """A context with an identity of its own, whose files are those of this machine.

    Args:
        cwd: where relative paths begin; itself from the process's directory.
        cancel: what stops its calls; a token of its own by default.
        budget: how much text a result may hold; the standard one by default.
        framework: handles for tools; none by default.
        roots: what may be touched; by default what is in `cwd`, but for what no tool writes.
        shell: where commands run; by default nowhere.  Whoever opened it closes it.
        overflow: keeps what the budget cuts; by default nothing does.

    Raises:
        ValueError: `cwd` is empty.
    """
    place = absolute(cwd)
    return ToolContext(
        place,
        LocalFs(Roots(place, protected=never_written) if roots is None else roots, place),
        UnavailableShell() if shell is None else shell,
        CancelToken() if cancel is None else cancel,
        STANDARD_BUDGET if budget is None else budget,
        Framework() if framework is None else framework,
        overflow=overflow,
    )
