"""The identity of a context."""

import dataclasses
import weakref

import pytest

from quarterdeck.tools.context import ContextId, Framework, ToolContext, UnavailableFs, UnavailableShell, inert_context
from quarterdeck.tools.results import STANDARD_BUDGET, UNLIMITED_BUDGET
from quarterdeck_protocol.tools import CancelToken


def make_context() -> ToolContext:
    return ToolContext(cwd="/work", fs=UnavailableFs(), shell=UnavailableShell())


def test_two_contexts_with_the_same_fields_are_different() -> None:
    """Two sessions in one directory would share their checklist."""
    first = make_context()
    second = dataclasses.replace(first, context_id=ContextId())
    assert first != second
    assert len({first, second}) == 2


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


def test_a_context_cannot_be_changed() -> None:
    """A tool could lend itself another directory."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        make_context().cwd = "/"  # type: ignore[misc]


def test_defaults_are_fresh_and_standard() -> None:
    """Contexts would share a cancel token, so that one cancelled call stops all."""
    first, second = make_context(), make_context()
    assert first.cancel is not second.cancel
    assert first.budget is STANDARD_BUDGET
    assert first.framework == Framework(read_state=None)


def test_the_inert_context_has_no_files_no_shell_and_no_limit() -> None:
    """Grafted tools would get at our files, or have their results cut."""
    context = inert_context()
    assert context.cwd == "/"
    assert isinstance(context.fs, UnavailableFs)
    assert isinstance(context.shell, UnavailableShell)
    assert context.budget is UNLIMITED_BUDGET
