"""The inert backends."""

import errno
import inspect

import pytest

from quarterdeck.tools.context import (
    BackendUnavailableError,
    Fs,
    OutsideRootsError,
    Shell,
    UnavailableFs,
    UnavailableShell,
)
from quarterdeck.tools.files.local_files import LocalFs


def verbs(protocol: type) -> set[str]:
    return {name for name, value in vars(protocol).items() if inspect.iscoroutinefunction(value) and name[0] != "_"}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("protocol", "backend", "name"),
    [(Fs, UnavailableFs(), name) for name in sorted(verbs(Fs))]
    + [(Shell, UnavailableShell(), name) for name in sorted(verbs(Shell))],
)
async def test_an_inert_backend_raises_on_every_use(protocol: type, backend: object, name: str) -> None:
    """A tool that runs elsewhere could touch our files, or fail with an AttributeError that explains nothing."""
    with pytest.raises(BackendUnavailableError, match="run elsewhere"):
        await getattr(backend, name)("/etc/passwd")
    assert issubclass(BackendUnavailableError, OSError)


@pytest.mark.anyio
async def test_keyword_arguments_are_refused_the_same_way() -> None:
    """The reason would be hidden behind a TypeError."""
    with pytest.raises(BackendUnavailableError):
        await UnavailableFs().rm("x", recursive=True, ignore_missing=True)
    with pytest.raises(BackendUnavailableError):
        await UnavailableFs().list_directory("x", most=1)
    with pytest.raises(BackendUnavailableError):
        await UnavailableShell().exec("ls", cwd="/", env={}, cancel=None, timeout_s=1.0, stdin="", on_output=print)
    with pytest.raises(BackendUnavailableError):
        await UnavailableShell().spawn("ls", cwd="/", env={}, on_output=print)


def test_a_backend_of_this_machine_has_every_verb() -> None:
    """A tool would fail with an AttributeError on the one that is missing."""
    assert verbs(LocalFs) == verbs(Fs)


def test_what_leads_out_of_the_roots_is_told_in_its_own_words() -> None:
    """A model would read a number and its path twice; or a tool would find no reason to show."""
    error = OutsideRootsError(errno.EACCES, "`x` is outside", "x")
    assert (str(error), error.strerror, error.errno, error.filename) == ("`x` is outside", "`x` is outside", 13, "x")
    assert str(OutsideRootsError("`x` is outside")) == "`x` is outside"
    assert isinstance(error, PermissionError)
