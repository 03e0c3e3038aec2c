"""Every code has its page."""

import pytest
from support.command_line import Said

from quarterdeck.cli.diagnose.explain import exit_pages, fault_pages
from quarterdeck.cli.exits import ExitCode
from quarterdeck_protocol.faults import REMEDIES


def test_every_code_of_a_fault_has_a_cause_and_an_example() -> None:
    """A user would be sent to a page that is not there."""
    pages = fault_pages()
    assert list(pages) == list(REMEDIES)
    for code, page in pages.items():
        assert page["cause"].endswith("."), code
        assert page["example"], code
        assert page["cause"] != REMEDIES[code], code


def test_every_code_that_an_error_is_printed_with_has_its_whole_page(said: Said) -> None:
    """A user would read what a code means, and not what to do."""
    silent = {ExitCode.OK, ExitCode.TOOL_ERROR, ExitCode.HUNG_UP, ExitCode.INTERRUPTED, ExitCode.TERMINATED}
    told = set(ExitCode) - silent
    assert exit_pages().keys() == {code.name.lower() for code in told}
    for code in told:
        page = said.json(0, "explain", code.name.lower(), "--json")
        assert all(page[part] for part in ("meaning", "cause", "fix", "example"))
        assert len({page[part] for part in ("meaning", "cause", "fix", "example")}) == 4
        out = said(0, "explain", code.name.lower()).out
        assert all(f"\n  {part}: " in out for part in ("meaning", "cause", "fix", "example"))


@pytest.mark.parametrize("code", ["tool_held", "usage", "not_found", "error[tool_held]"])
def test_a_page_is_found_by_what_stands_in_the_error(code: str, said: Said) -> None:
    """The code would be of no use."""
    assert "cause: " in said(0, "explain", code).out
    assert said.json(0, "explain", code, "--json")["cause"]


def test_all_codes_are_listed_and_a_wrong_one_is_told_the_nearest(said: Said) -> None:
    """Who remembers half of a code would not find it."""
    out = said(0, "explain").out
    assert all(f"\n{code} " in out for code in REMEDIES)
    assert "did you mean 'tool_held'?" in said(ExitCode.NOT_FOUND, "explain", "tol_held").err
