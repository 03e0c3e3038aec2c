"""What people really run works under the preset `standard`: in every tier, as root and as an ordinary user."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from support.config.places import short_folder
from support.processes.identities import Identity, is_open, plain_python
from support.processes.running import run
from support.sandbox.hostile import Scene, scene
from support.sandbox.machine_facts import bubblewrap_missing, installing_missing, not_installed
from support.servers.real_servers import install_tools

from quarterdeck_protocol.policy_values import Tier

pytestmark = pytest.mark.nightly

REGISTRY_S: Final = 120.0
"""For one package from an empty cache, on a slow line."""

FOR_REGISTRIES: Final = (
    *("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("UV_DEFAULT_INDEX", "UV_INDEX_URL", "NPM_CONFIG_REGISTRY", "npm_config_registry"),
)
"""What a machine may need to reach its registries."""

ADD_IN_WASM: Final = (
    "0,97,115,109,1,0,0,0,1,7,1,96,2,127,127,1,127,3,2,1,0,7,7,1,3,97,100,100,0,0,10,9,1,7,0,32,0,32,1,106,11"
)

NODE: Final = f"""
const {{execFileSync}} = require("child_process");
const {{Worker}} = require("worker_threads");
const bytes = Uint8Array.from([{ADD_IN_WASM}]);
WebAssembly.instantiate(bytes).then(({{instance}}) => {{
    const child = execFileSync(process.execPath, ["-p", "6 * 7"]).toString().trim();
    new Worker("require('worker_threads').parentPort.postMessage(3)", {{eval: true}})
        .on("message", (three) => console.log(instance.exports.add(2, 3), child, three));
}});
"""

ASYNCIO: Final = """
import asyncio, sys
async def main():
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(5)", stdout=asyncio.subprocess.PIPE)
    told, _ = await child.communicate()
    threads = await asyncio.gather(*(asyncio.to_thread(pow, n, 2) for n in range(4)))
    print(int(told), threads)
asyncio.run(main())
"""

MULTIPROCESSING: Final = """
import multiprocessing
def square(n):
    return n * n
if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        print(pool.map(square, range(4)))
    queue = multiprocessing.Queue()
    child = multiprocessing.Process(target=queue.put, args=("hello",))
    child.start()
    print(queue.get(), child.join())
"""

SQLITE: Final = """
import os, sqlite3
file = os.path.join(os.environ["HOME"], "notes.db")
with sqlite3.connect(file) as base:
    base.execute("pragma journal_mode=wal")
    base.execute("create table notes (text)")
    base.execute("insert into notes values ('kept')")
print(sqlite3.connect(file).execute("select text from notes").fetchall())
"""

GIT: Final = """
set -e
git init -q "$HOME/repo"
cd "$HOME/repo"
echo text > note
git add note
git -c user.name=T -c user.email=t@example.com -c commit.gpgsign=false commit -q -m first
git clone -q . "$TMPDIR/copy"
git -C "$TMPDIR/copy" log --format=%s
"""

GCC: Final = """
set -e
cd "$TMPDIR"
printf '#include <stdio.h>\\nint main(void) { puts("compiled"); return 0; }\\n' > program.c
gcc -O1 -o program program.c
./program
"""

TAR: Final = """
set -e
folder=$(mktemp -d)
file=$(mktemp)
echo packed > "$folder/file"
tar -C "$folder" -czf "$folder.tgz" file
tar -xzOf "$folder.tgz" file
rm "$file"
"""

WORKS: Final = {
    "node": (["node", "-e", NODE], "5 42 3\n"),
    "asyncio": (["PYTHON", "-c", ASYNCIO], "5 [0, 1, 4, 9]\n"),
    "multiprocessing": (["PYTHON", "-c", MULTIPROCESSING], "[0, 1, 4, 9]\nhello None\n"),
    "sqlite": (["PYTHON", "-c", SQLITE], "[('kept',)]\n"),
    "git": (["sh", "-c", GIT], "first\n"),
    "gcc": (["sh", "-c", GCC], "compiled\n"),
    "tar": (["sh", "-c", TAR], "packed\n"),
    "script": (["script", "-qec", "test -t 1 && echo terminal", "/dev/null"], "terminal\r\n"),
}
"""Commands, with what they print."""


@pytest.fixture
def place(identity: Identity, tier: Tier) -> Iterator[Scene]:
    lacking = bubblewrap_missing() if tier is Tier.BUBBLEWRAP else installing_missing(tier)
    if reason := identity.missing or lacking:
        pytest.skip(reason)
    with scene(identity) as made:
        yield made


ONE_BY_ONE: Final = """
import json, subprocess, sys
ended = {}
for name, argv in json.loads(sys.argv[1]).items():
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    ended[name] = [done.returncode, done.stdout.decode(), done.stderr.decode()]
print(json.dumps(ended))
"""


def lacks(work: str, path: str) -> str:
    """What this work needs and is not there; empty when all is."""
    needed = [WORKS[work][0][0], *((work,) if work in ("gcc", "git") else ())]
    return ", ".join(name for name in needed if name != "PYTHON" and shutil.which(name, path=path) is None)


@pytest.mark.parametrize("identity", Identity)
@pytest.mark.parametrize("tier", [Tier.BUBBLEWRAP, Tier.LANDLOCK])
def test_ordinary_work_is_not_disturbed(tier: Tier, identity: Identity, place: Scene) -> None:
    """A sandbox in which things break is one that is switched off."""
    works = set(WORKS)
    if tier is Tier.LANDLOCK:
        # Without a namespace /dev/shm, and so every semaphore with a name, is everybody's: it is closed.
        works.remove("multiprocessing")
    missing = {work: lack for work in sorted(works) if (lack := lacks(work, place.environ()["PATH"]))}
    tried = {
        work: [plain_python() if word == "PYTHON" else word for word in WORKS[work][0]]
        for work in sorted(works - missing.keys())
    }
    run = place.run(tier, [plain_python(), "-c", ONE_BY_ONE, json.dumps(tried)])
    assert run.status == 0, run.stderr
    assert run.receipt["tier"] == tier
    ended = json.loads(run.stdout)
    assert ended.keys() == tried.keys()
    assert {work: said for work, said in ended.items() if said[:2] != [0, WORKS[work][1]]} == {}
    if missing:
        pytest.skip(f"the rest works, but this is not installed: {missing}")


def registry_options() -> list[str]:
    return [word for name in FOR_REGISTRIES if name in os.environ for word in ("--env", f"{name}={os.environ[name]}")]


@pytest.fixture(scope="module")
def npx() -> str:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(not_installed("npm"))
    asked = run(npm, "view", "cowsay", "version", within_s=REGISTRY_S)
    if asked.returncode:
        pytest.skip(f"npm reaches no registry: {asked.stderr.strip()[-200:]}")
    return "npx"


@pytest.mark.parametrize("identity", Identity)
@pytest.mark.parametrize("tier", [Tier.BUBBLEWRAP, Tier.LANDLOCK])
def test_npx_runs_a_package_from_an_empty_cache(tier: Tier, identity: Identity, place: Scene, npx: str) -> None:
    """Half of all MCP servers are started like that."""
    run = place.run(tier, [npx, "-y", "cowsay", "moo"], *registry_options())
    assert run.status == 0, run.stderr
    assert b"< moo >" in run.stdout


@pytest.fixture(scope="module")
def uv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with `uv` and `uvx`, that every user can read."""
    found = install_tools(tmp_path_factory.getbasetemp())
    if found.missing:
        pytest.skip(found.missing)
    with short_folder(0o755) as folder:
        for program in ("uv", "uvx"):
            shutil.copy(Path(found.argv[0], program), folder / program)
        assert is_open(folder / "uvx")
        yield folder


@pytest.mark.parametrize("identity", Identity)
@pytest.mark.parametrize("tier", [Tier.BUBBLEWRAP, Tier.LANDLOCK])
def test_uvx_runs_a_package_from_an_empty_cache(tier: Tier, identity: Identity, place: Scene, uv: Path) -> None:
    """The other half is started like that."""
    command = [str(uv / "uvx"), "--python", plain_python(), "--from", "cowsay", "cowsay", "-t", "moo"]
    run = place.run(tier, command, "--read", str(uv), *registry_options())
    assert run.status == 0, run.stderr
    assert b"| moo |" in run.stdout
