"""Pages, read in a process of their own."""

import gc
import sys
from types import FrameType

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.processes.leftovers import descendants, no_leftovers
from support.processes.running import loaded_by
from support.waiting import eventually_async

from quarterdeck.tools.web import pages
from quarterdeck.tools.web.page_child import MAX_CHARS
from quarterdeck.tools.web.pages import PageReader, PageText, strip_tags

pytestmark = pytest.mark.process

URL = "https://example.com/a/"

SLOW = "<" * 3_000_000  # the parser needs hours for it
PATIENT_S = 60.0  # for pages that must not fail for want of time on a busy machine


def readers() -> list[int]:
    return [pid for pid, line in descendants().items() if "page_child" in line]


async def test_text_that_is_no_text_does_no_harm() -> None:
    """A lone surrogate or a NUL would be an exception."""
    page = await PageReader(PATIENT_S).read("<p>a\ud800b\0c", "https://example.com/\u00fc")
    assert page.text == "a?bc"


async def test_a_page_made_to_be_slow_is_stripped_in_its_time() -> None:
    """One page would hold up the whole program."""
    with no_leftovers():
        page = await PageReader(wall_s=0.5).read("<p>some <b>text</b></p>" + SLOW, URL)
    assert page.is_crude
    assert page.text.startswith("some text")


async def test_a_page_made_to_be_large_is_stripped(monkeypatch: pytest.MonkeyPatch) -> None:
    """One page would exhaust the machine."""
    boot = pages.BOOT.replace("; main()", "; page_child.MEMORY_BYTES = 80 << 20; page_child.main()")
    monkeypatch.setattr(pages, "BOOT", boot.replace("page_child import main", "import page_child"))
    assert "80 << 20" in pages.BOOT
    with no_leftovers():
        page = await PageReader(PATIENT_S).read("<p>text" + "<b>" * 400_000, URL)
    assert page == PageText("", "text", is_crude=True)


async def test_the_limits_hold_in_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that finds a way into the parser could write files or run on."""
    asks = (
        "import resource; from quarterdeck.tools.web import page_child; page_child._limit(); "
        "names = ('CPU', 'AS', 'FSIZE', 'CORE', 'NPROC'); "
        "print('limits', [resource.getrlimit(getattr(resource, 'RLIMIT_' + name))[0] for name in names])"
    )
    monkeypatch.setattr(pages, "BOOT", pages.BOOT.split("from quarterdeck")[0] + asks)
    page = await PageReader(PATIENT_S).read("", URL)
    assert page.title == "limits [10, 805306368, 0, 0, 0]"


def test_the_process_imports_none_of_our_heavy_parts() -> None:
    """Each page would take a second to start with."""
    modules = loaded_by("import quarterdeck.tools.web.page_child")
    packages = {name.partition(".")[0] for name in modules}
    assert "quarterdeck" in packages
    assert packages.isdisjoint(("anyio", "asyncio", "httpx2", "httpcore2", "mcp", "msgspec", "pydantic", "zmq", "ssl"))
    assert {name for name in modules if name.startswith("quarterdeck_")} <= {
        "quarterdeck_protocol",
        "quarterdeck_protocol.lazy",
    }


async def test_a_text_that_grows_is_cut() -> None:
    """Short links on a page with a long address would grow a thousandfold."""
    url = "https://example.com/" + "a" * 1900 + "/"
    page = await PageReader(PATIENT_S).read("<a href=b>x</a> " * 3_000, url)
    assert not page.is_crude
    assert MAX_CHARS * 0.9 < len(page.text) < MAX_CHARS * 1.1
    assert page.text.endswith("[the page goes on]")


@pytest.mark.parametrize(
    "boot",
    [
        "raise SystemExit(3)",
        "import os; os.kill(os.getpid(), 9)",
        "import os; os.close(0); raise SystemExit(1)",
        "import os\nwhile True: os.write(1, b'x' * 65536)",
    ],
    ids=["fails", "is killed", "reads nothing", "writes without end"],
)
async def test_a_process_that_fails_is_no_failure(boot: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that brings the parser down would show nothing, or fill our memory."""
    monkeypatch.setattr(pages, "BOOT", boot)
    with no_leftovers():
        page = await PageReader(PATIENT_S).read("<p>text</p>" + " " * 1_000_000, URL)
    assert page == PageText("", "text", is_crude=True)


async def test_a_machine_that_starts_no_process_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full process table would be an exception."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert await PageReader(PATIENT_S).read("<p>text", URL) == PageText("", "text", is_crude=True)


async def test_cancelling_ends_the_process() -> None:
    """Cancelled calls would leave processes that compute on."""
    before = readers()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(PageReader(PATIENT_S).read, SLOW, URL)
        await eventually_async(lambda: len(readers()) > len(before))
        tasks.cancel_scope.cancel()
    await eventually_async(lambda: len(readers()) == len(before))


async def test_only_so_many_are_read_at_a_time() -> None:
    """Twenty pages at once would need twenty times the memory."""
    most = 0
    reader = PageReader(PATIENT_S)

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, len(readers()))
            await anyio.sleep(0.02)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        async with anyio.create_task_group() as calls:
            for _ in range(pages.AT_A_TIME + 1):
                calls.start_soon(reader.read, "<p>text" * 2_000, URL)
        tasks.cancel_scope.cancel()
    assert 1 <= most <= pages.AT_A_TIME


async def test_the_process_gets_none_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys in the user's environment would lie beside a stranger's page."""
    monkeypatch.setenv("SECRET", "x")
    boot = "import os; print('SECRET' in os.environ, os.getcwd(), os.getsid(0) == os.getpid())"
    monkeypatch.setattr(pages, "BOOT", boot)
    assert (await PageReader(PATIENT_S).read("", URL)).title == "False / True"


def test_a_process_is_owned_from_its_first_moment() -> None:
    """Cancelled while it starts, a process would be left to the collector, which complains."""

    async def read(wall_s: float) -> PageText:
        return await PageReader(wall_s).read("<p>text" + SLOW[:100_000], URL)

    with no_leftovers():
        for step in range(12):
            # A loop of its own: what it does not own any more is lost when it closes.
            assert anyio.run(read, 0.0003 * step).text.startswith("text")
        gc.collect()


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>one</p><p>two <b>three</b></p>", "one\ntwo three"),
        ("a < b &amp;&lt; c", "a < b &< c"),
        ("<script>if (a < b) { x('</p>') }</script>y", "y"),
        ("<STYLE>p{}</STYLE >y", "y"),
        ("<head><title>t</title></head>y", "y"),
        ("x<!-- <p>no</p> -->y", "x\ny"),
        ("x<!-- never closed", "x"),
        ("x<script>never closed", "x\nnever closed"),
        ("x<p never closed", "x"),
        ("<!doctype html><?xml?>x", "x"),
        ("&#65;&#x42;&#99999999999;&nosuch;&#1114112;", "AB&#99999999999;&nosuch;\ufffd"),
        ("a\x1bb\tc\r\nd", "ab c\nd"),
        ("plain", "plain"),
        ("", ""),
    ],
)
def test_tags_go_and_text_stays(page: str, text: str) -> None:
    """A page that no parser gets through would show nothing."""
    assert strip_tags(page) == text


@given(st.text(alphabet="<>/!-&;#xscript aİ\n\"'=", max_size=200))
def test_any_page_gives_text(page: str) -> None:
    """The last resort could fail itself."""
    assert "\n\n" not in strip_tags(page)


@pytest.mark.parametrize(
    "unit",
    ["<", "<a", "<b>", "</", "<!--", "<!-- -->", "<script>", "<script></", "&", "&#1", "<p title='", "&#" + "9" * 5000],
)
def test_two_megabytes_of_anything_are_done_at_once(unit: str) -> None:
    """A page made to be slow would be slow here too: with a quadratic step this test would take half an hour."""
    strip_tags(unit * ((2 << 20) // len(unit)))


def test_other_threads_get_a_turn_at_each_tag() -> None:
    """A page of a million tags held up every client for half a second: only Python's own calls let others go on."""
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename == pages.__file__

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        strip_tags("<li>" * 1000)
    finally:
        sys.setprofile(before)
    assert calls > 1000
