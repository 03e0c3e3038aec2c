"""The module that pytest loads (entry point `quarterdeck`): options, the marker, the run's supervisor, reports, leaks.

Neither it nor its imports import the product: see the package.
"""

from collections.abc import Generator
from typing import Any, Final

import pytest

from .activation import Run, RunAddress
from .fixtures import (
    _mcp_module_scope,
    _mcp_session_scope,
    mcp_answers,
    mcp_async_client,
    mcp_client,
    mcp_config,
    mcp_deck,
    mcp_era,
    mcp_server,
)
from .options import ERAS, MARKER, add_options, check_xdist, read_mark, read_options
from .state import SERVERS, SESSION, WORKER_INPUT, WORKER_OUTPUT, Session

__all__ = [
    "_mcp_module_scope",
    "_mcp_session_scope",
    "mcp_answers",
    "mcp_async_client",
    "mcp_client",
    "mcp_config",
    "mcp_deck",
    "mcp_era",
    "mcp_server",
]

FIXTURES: Final = frozenset({"mcp_server", "mcp_client", "mcp_async_client", "mcp_deck"})


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, under one heading."""
    add_options(parser)


def pytest_load_initial_conftests(parser: pytest.Parser, args: list[str]) -> None:
    """Report missing xdist if its options are unknown."""
    check_xdist(parser.parse_known_and_unknown_args(args)[1])


def pytest_configure(config: pytest.Config) -> None:
    """Read the options; take the supervisor's address in an xdist worker."""
    config.addinivalue_line("markers", MARKER)
    session = config.stash[SESSION] = Session(read_options(config))
    handed: dict[str, Any] | None = getattr(config, "workerinput", None)
    if handed is not None and WORKER_INPUT in handed:
        session.address = RunAddress(**handed[WORKER_INPUT])


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Hand an xdist worker the address of the run's one supervisor, which starts on demand."""
    session = node.config.stash[SESSION]
    if session.run is None:
        session.run = Run()
        session.address = session.run.address
    node.workerinput[WORKER_INPUT] = session.run.address.to_workerinput()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:  # noqa: ARG001 - the hook's
    """Take the leftovers of an xdist worker's tests."""
    output = getattr(node, "workeroutput", None) or {}
    node.config.stash[SESSION].leaks += output.get(WORKER_OUTPUT, [])


def pytest_report_header(config: pytest.Config) -> str | None:
    """Report a restriction that nobody asked for."""
    options = config.stash[SESSION].options
    return f"mcp: network {options.network} ({options.network_reason})" if options.network_reason else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test for each wanted era, of those that use a server."""
    if not FIXTURES & set(metafunc.fixturenames):
        return
    try:
        marked = read_mark((mark.args, mark.kwargs) for mark in metafunc.definition.iter_markers("mcp"))
    except pytest.UsageError as error:
        raise pytest.fail.Exception(f"{metafunc.definition.nodeid}: {error}", pytrace=False) from None
    era = marked.era or metafunc.config.stash[SESSION].options.era
    if era == "both":
        metafunc.parametrize("mcp_era", ERAS, indirect=True)
    elif era:
        metafunc.parametrize("mcp_era", [era], indirect=True, ids=[era])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Add to a failure the facts about the servers that the test used."""
    report = yield
    if report.failed and call.when != "teardown":
        from .report import add_sections

        servers = item.stash.get(SERVERS, None)
        add_sections(report, servers or (), call.excinfo.value if call.excinfo is not None else None)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Note the leftovers of a test that used a server."""
    try:
        return (yield)
    finally:
        if (watch := item.config.stash[SESSION].watch) is not None:
            watch.end()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, Any, Any]:
    """End the supervisor, and fail the run for leftovers.

    After all fixtures have ended, and before xdist sends our output to the controller and the terminal sums up.
    """
    result = yield
    own = session.config.stash[SESSION]
    own.leaks += own.close()
    if own.watch is not None:
        own.leaks += own.watch.left()  # without a supervisor, which is a child of ours
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[WORKER_OUTPUT] = own.leaks
        return result
    if own.leaks and own.options.leaks == "error" and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    return result


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Name the leftovers, and the folder of kept state."""
    own = config.stash[SESSION]
    if own.leaks and own.options.leaks != "off":
        terminalreporter.section("MCP servers: left behind", red=own.options.leaks == "error")
        for line in sorted(own.leaks):
            terminalreporter.line(line)
    if own.options.keep and own.run is not None and own.run.was_used:
        terminalreporter.line(f"mcp: the servers' state is kept in {own.run.address.folder}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """End our processes where the session never came to its end."""
    if (own := config.stash.get(SESSION, None)) is not None:
        own.close()
