"""The identity of a context."""

import dataclasses
import errno
import inspect
import weakref

import pytest
from support.tools.contexts import UnavailableFs

from quarterdeck.tools.context import (
    BackendUnavailableError,
    ContextId,
    Framework,
    OutsideRootsError,
    Shell,
    ToolContext,
    UnavailableShell,
)
from quarterdeck.tools.results import STANDARD_BUDGET
from quarterdeck_protocol.tools import CancelToken


def make_context() -> ToolContext:
    return ToolContext(cwd="/work", fs=UnavailableFs(), shell=UnavailableShell())


def test_a_copy_with_another_cancel_token_keeps_the_identity() -> None:
    """A session's stores would be lost between two calls."""
    context = make_context()
    cancel = CancelToken()
    copy = context.with_cancel(cancel)
    assert copy.cancel is cancel
    assert copy.context_id is context.context_id
    assert copy == context
    assert hash(copy) == hash(context)
    assert dataclasses.replace(copy, cancel=context.cancel, context_id=ContextId()).cwd == context.cwd


def test_a_store_kept_by_identity_ends_with_its_last_context() -> None:
    """Stores of ended sessions would fill the memory of a long-lived process."""
    context = make_context()
    stores = weakref.WeakKeyDictionary({context.context_id: ["a task"]})
    copy = context.with_cancel(CancelToken())
    del context
    assert stores[copy.context_id] == ["a task"]
    del copy
    assert len(stores) == 0


def test_defaults_are_fresh_and_standard() -> None:
    """Contexts would share a cancel token, so that one cancelled call stops all."""
    first, second = make_context(), make_context()
    assert first.cancel is not second.cancel
    assert first.budget is STANDARD_BUDGET
    assert first.framework == Framework(read_state=None)


def verbs(protocol: type) -> set[str]:
    return {name for name, value in vars(protocol).items() if inspect.iscoroutinefunction(value) and name[0] != "_"}


@pytest.mark.parametrize("name", sorted(verbs(Shell)))
async def test_an_inert_shell_raises_on_every_use(name: str) -> None:
    """A tool that runs elsewhere could touch our files, or fail with an AttributeError that explains nothing."""
    with pytest.raises(BackendUnavailableError, match="no commands"):
        await getattr(UnavailableShell(), name)("/etc/passwd")
    assert issubclass(BackendUnavailableError, OSError)


def test_what_leads_out_of_the_roots_is_told_in_its_own_words() -> None:
    """A model would read a number and its path twice; or a tool would find no reason to show."""
    error = OutsideRootsError(errno.EACCES, "`x` is outside", "x")
    assert (str(error), error.strerror, error.errno, error.filename) == ("`x` is outside", "`x` is outside", 13, "x")
    assert str(OutsideRootsError("`x` is outside")) == "`x` is outside"
    assert isinstance(error, PermissionError)
