"""Pages that a fork wrote to and left as they were: given back, and no others.

In processes of their own: a heap is moved once, and for good.
"""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from support.processes.running import python_output
from support.sandbox.gates import COMPILERS, NO_COMPILER
from support.sandbox.machine_facts import LINUX_ONLY

from quarterdeck_worker.pages import give_back, move_heap

pytestmark = [LINUX_ONLY, pytest.mark.process]

Run = Callable[[str], object]

NATIVE = Path(__file__).resolve().parents[2] / "sandbox" / "native"
BEGINNING = """
import gc, os, sys, threading, time
from pathlib import Path
from quarterdeck_worker.pages import give_back, move_heap

size = os.sysconf("SC_PAGESIZE")
data = bytearray(b"x" * (1024 * size))  # a mapping of its own
pages = range(0, len(data), size)

def private_pages():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) * 1024 // size

def in_fork(act):
    child = os.fork()
    if not child:
        try:
            act()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0

assert move_heap(Path(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, compiled without a warning."""
    if not COMPILERS:
        pytest.skip(NO_COMPILER)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(NATIVE))
        patch.setenv("CC", COMPILERS[0])
        import compile_gate

        maker: ModuleType = compile_gate
        place = tmp_path_factory.mktemp("library") / "pages.so"
        maker.compile_pages(place, strict=True)
        return place


@pytest.fixture
def run(library: Path) -> Run:
    """Run a program that begins with its heap moved; what it asserts must hold."""
    return lambda text: python_output(BEGINNING + text, library)


def test_a_page_that_is_as_it_was_is_shared_again(run: Run) -> None:
    """Each worker would keep a third of its memory for nothing."""
    run("""
def act():
    for at in pages:
        data[at] ^= 1
    for at in pages:
        data[at] ^= 1
    before = private_pages()
    assert give_back() >= len(pages) - 2
    assert private_pages() < before - len(pages) * 3 // 4
    assert data == b"x" * len(data)

in_fork(act)
""")


def test_a_page_that_is_another_stays_as_it_is(run: Run) -> None:
    """A worker would lose what it holds."""
    run("""
def act():
    for number, at in enumerate(pages):
        data[at] = number % 251
    for at in pages[::2]:
        data[at] = ord("x")
    assert len(pages) // 2 - 2 <= give_back() < len(pages)
    assert all(data[at] == ord("x") for at in pages[::2])
    assert all(data[at] == number % 251 for number, at in enumerate(pages) if number % 2)
    for at in pages:
        data[at] = 7
    give_back()
    assert all(data[at] == 7 for at in pages)

in_fork(act)
in_fork(act)  # of the first nothing has come here
assert data == b"x" * len(data)
""")


def test_memory_that_lies_where_moved_memory_lay_is_left_alone(run: Run) -> None:
    """What looks like the file's page, and is not, would turn to zeros."""
    run("""
import ctypes, mmap
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
MAP_FIXED = 16

def act():
    first = (ctypes.addressof(ctypes.c_char.from_buffer(data)) // size + 1) * size
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED
    assert libc.mmap(first, 16 * size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0) == first
    ctypes.memset(first, ord("x"), 16 * size)
    give_back()
    assert data == b"x" * len(data)

in_fork(act)
""")


def test_an_interpreter_goes_on_as_before_however_often_it_gives_back(run: Run) -> None:
    """A count of references that was lost would be a crash, much later."""
    run("""
import json, re, decimal

def act():
    for turn in range(20):
        made = [json.dumps({"a": [number, str(number)] * 3}) for number in range(300)]
        assert [json.loads(each)["a"][0] for each in made] == list(range(300))
        assert re.sub("a", "b", "a" * turn) == "b" * turn
        gc.collect()
        give_back()

for _ in range(2):
    in_fork(act)
act()  # the zygote's own is no other
""")


def test_beside_another_thread_nothing_is_given_back(run: Run) -> None:
    """It could write between the look at a page and its end."""
    run("""
def act():
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    data[0] = data[0]
    assert give_back() == 0
    over.set()
    thread.join()
    until = time.monotonic() + 10  # the kernel may take a moment to forget it
    while not give_back():
        assert time.monotonic() < until

in_fork(act)
""")


def test_what_was_moved_can_be_written_by_nobody(run: Run) -> None:
    """One worker that was taken over would have a way into all others."""
    run("""
links = {int(name): os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if int(name) > 2
         and os.path.islink(f"/proc/self/fd/{name}")}
[file] = [number for number, link in links.items() if "quarterdeck-zygote" in link]
assert not os.get_inheritable(file)
for write in (lambda: os.pwrite(file, b"y", 0), lambda: os.ftruncate(file, 0)):
    try:
        write()
    except PermissionError:
        continue
    raise AssertionError("it was written")
""")


def test_without_its_library_no_heap_is_moved(tmp_path: Path) -> None:
    """A zygote would not start where there was no compiler, or where another's library lies."""
    assert not move_heap(tmp_path / "none.so")
    assert not move_heap(Path("libc.so.6"))
    assert give_back() == 0
