"""Show the parts of the configuration that cannot be used, as a banner of `ps`, `status`, `allow` and `doctor`."""

from collections.abc import Iterable

from quarterdeck.common.words import flat
from quarterdeck.config.load.trouble import Trouble
from quarterdeck.daemon.control.protocol import Ps, ServerList

from .exits import CommandError
from .output import print_line
from .source import Source, ask_running


def print_troubles(troubles: Iterable[Trouble], *, stderr: bool = False) -> None:
    """Print each trouble once: file, row, reason, the configuration that runs meanwhile, and the fix."""
    for trouble in dict.fromkeys(troubles):
        print_line(f"configuration: {flat(trouble.message)}; {flat(trouble.meanwhile)}", "bold red", stderr=stderr)
        print_line(f"  fix: {trouble.remedy}", stderr=stderr)


def present_troubles(source: Source, of_files: tuple[Trouble, ...]) -> tuple[Trouble, ...]:
    """Return the troubles of the `serve` that runs this configuration, or `of_files` if none runs."""
    try:
        answer = ask_running(source, Ps()) if of_files else None
    except CommandError:
        answer = None  # this command's answer does not depend on it
    return answer.troubles if isinstance(answer, ServerList) else of_files
