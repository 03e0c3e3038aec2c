"""The inert backends."""

import inspect

import pytest

from quarterdeck.kernel.backends import BackendUnavailableError, Fs, Shell, UnavailableFs, UnavailableShell


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
        await UnavailableShell().exec("ls", cwd="/", env={}, cancel=None, timeout_s=1.0, stdin="")
