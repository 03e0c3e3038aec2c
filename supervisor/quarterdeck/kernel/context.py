"""What a tool may use while it runs, and whose it is."""

from dataclasses import dataclass, field, replace
from typing import Self

from quarterdeck_protocol.tools import CancelToken, ProgressNote, Report, ToolCall

from .backends import Fs, Shell, UnavailableFs, UnavailableShell
from .budget import STANDARD_BUDGET, UNLIMITED_BUDGET, OutputBudget
from .overflow import Overflow


class ContextId:
    """The identity of a context and of all its `with_cancel` copies.

    Opaque.  Meant as the key of a `weakref.WeakKeyDictionary` that keeps a store per session: it lives as long as the
    session's box.
    """

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, slots=True)
class Framework:
    """Handles that a host lends to tools.

    Attributes:
        read_state: what the file tools remember of files read, for their read-before-edit gate; None for no gate.
            They own its type.
    """

    read_state: object | None = None


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The surroundings of a tool call.

    Two contexts are equal when they have the same identity, whatever their other fields hold; so the copy that each
    call gets equals the box's base context.

    Attributes:
        budget: how much text one result may hold.
        overflow: keeps what the budget cuts; None keeps nothing.
        report: takes progress notes of the call; None when nobody wants any.
    """

    cwd: str = field(compare=False)
    fs: Fs = field(compare=False)
    shell: Shell = field(compare=False)
    cancel: CancelToken = field(default_factory=CancelToken, compare=False)
    budget: OutputBudget = field(default=STANDARD_BUDGET, compare=False)
    framework: Framework = field(default_factory=Framework, compare=False)
    context_id: ContextId = field(default_factory=ContextId, repr=False)
    overflow: Overflow | None = field(default=None, compare=False)
    report: Report | None = field(default=None, compare=False)

    def with_cancel(self, cancel: CancelToken) -> Self:
        """The same context, identity included, for a call that `cancel` stops."""
        # Spelt out: `dataclasses.replace` takes as long as all else that the kernel does for a call.
        return type(self)(
            self.cwd,
            self.fs,
            self.shell,
            cancel,
            self.budget,
            self.framework,
            self.context_id,
            self.overflow,
            self.report,
        )

    def for_call(self, call: ToolCall, cancel: CancelToken) -> Self:
        """The same context, identity included, for one call: what stops it, and who hears of its progress."""
        base = self.with_cancel(cancel)
        return base if call.report is None else replace(base, report=call.report)

    def tell(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Note how far the call is, when anybody wants to know."""
        if self.report is not None:
            self.report(ProgressNote(progress, total, message))


def inert_context() -> ToolContext:
    """A context for tools that run elsewhere: files and commands raise on use, and only then."""
    return ToolContext(cwd="/", fs=UnavailableFs(), shell=UnavailableShell(), budget=UNLIMITED_BUDGET)
