"""Installations of seals, by real installers from a registry of the test's own: the same bytes anywhere, or nothing."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import psutil
import pytest
from support.sandbox.machine_facts import bubblewrap_missing
from support.servers.package_registries import PackageRegistry, package_registry
from support.waiting import eventually_async

from quarterdeck.seals import install, python
from quarterdeck.seals.install import InstallSettings, Progress
from quarterdeck.seals.launch import launch_of
from quarterdeck.seals.manifest import Bounds, SealError
from quarterdeck.seals.request import PackageIndex, PackageRequest
from quarterdeck.seals.store import Seal, SealStore
from quarterdeck_protocol.policy_values import MAX_SEAL_BYTES, Tier
from quarterdeck_sandbox import known_machine

pytestmark = pytest.mark.process

PYTHON = os.path.dirname(os.path.realpath(sys.executable))
PATH = os.pathsep.join((PYTHON, os.environ["PATH"]))
needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")


def npx(name: str = "server", spec: str = "", **facts: object) -> PackageRequest:
    return PackageRequest("npx", PackageIndex.NPM, name, spec, **facts)


def uvx(name: str = "server", spec: str = "", **facts: object) -> PackageRequest:
    return PackageRequest("uvx", PackageIndex.PYPI, name, spec, **facts)


@pytest.fixture
async def registry():
    async with package_registry() as running:
        yield running


@pytest.fixture
def store(tmp_path) -> SealStore:
    return SealStore(tmp_path / "seals")


class Installer:
    """Seals for a user with one registry, in one store."""

    def __init__(self, registry: PackageRegistry, store: SealStore, home: Path) -> None:
        self._registry = registry
        self._store = store
        self._home = home
        self.path = PATH
        self.login = ""
        self.environ: dict[str, str] = {}
        self.facts: dict[str, object] = {}

    async def seal(self, request: PackageRequest, store: SealStore | None = None, **options: object) -> Seal:
        environ = self._registry.environ(self.path, self.login) | self.environ
        settings = InstallSettings(environ, self._home, **self.facts)
        return await install.seal(request, store or self._store, settings, **options)

    async def refusal(self, request: PackageRequest, **options: object) -> SealError:
        with pytest.raises(SealError) as caught:
            await self.seal(request, **options)
        return caught.value


@pytest.fixture
def installer(registry, store, tmp_path) -> Installer:
    if missing := bubblewrap_missing():
        pytest.skip(missing)
    (tmp_path / "home").mkdir()
    return Installer(registry, store, tmp_path / "home")


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path):
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    yield
    making = tmp_path / "seals" / ".making"
    assert not making.exists() or os.listdir(making) == []
    after = [process for process in psutil.Process().children(recursive=True) if process.pid not in before]
    assert [process for process in after if process.is_running() and process.status() != psutil.STATUS_ZOMBIE] == []


def output_of(seal: Seal, request: PackageRequest, home: Path) -> str:
    """What the program prints, started as the seal says, without anything else."""
    launch = launch_of(seal, request, PATH)
    environ = {"PATH": os.pathsep.join((*launch.path, PATH)), "HOME": str(home), **launch.env}
    words = (launch.command, *launch.args)
    done = subprocess.run(words, env=environ, cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_npm
async def test_an_npm_package_is_the_same_bytes_wherever_it_is_installed(registry, installer, tmp_path):
    """Two machines would have different seals of the same packages, or a seal that does not start."""
    registry.publish("dep", bin="index.js", scripts={"postinstall": "touch ran"})
    registry.publish(
        "@s/server", bin={"run": "index.js"}, dependencies={"dep": "^1"}, optionalDependencies={"gone": "1"}
    )
    told: list[Progress] = []
    left: list[str] = []

    def tell(progress: Progress) -> None:
        told.append(progress)
        if progress.step == "hash":
            left.extend(path.name for path in (tmp_path / "seals" / ".making").glob("*/*"))

    asked = npx("@s/server", "latest", args=("--flag", "x y"))
    one = await installer.seal(asked, tell=tell)
    manifest = one.manifest
    assert [(each.name, each.version, each.license, each.script) for each in manifest.packages] == [
        ("@s/server", "1.0.0", "MIT", ""),
        ("dep", "1.0.0", "MIT", "postinstall"),
    ]
    assert all(each.size > 0 and each.integrity.startswith("sha512-") for each in manifest.packages)
    assert (manifest.version, manifest.has_run_scripts) == ("1.0.0", False)
    assert not (one.tree / "node_modules/dep/ran").exists()
    assert json.loads(output_of(one, asked, tmp_path)) == ["--flag", "x y"]
    assert list(dict.fromkeys(each.step for each in told)) == ["resolve", "fetch", "install", "hash"]
    assert left == ["tree"]  # else the disk would write the installer's cache out with the seal

    registry.publish("dep", "1.5.0")
    registry.publish("@s/server", "2.0.0", bin={"run": "index.js"})
    again = await installer.seal(asked, SealStore(tmp_path / "elsewhere" / "seals"), lock=manifest.lock)
    assert again.digest == one.digest
    assert again.manifest.lock == manifest.lock


@needs_npm
@pytest.mark.nightly
async def test_install_scripts_run_only_when_they_are_approved(registry, installer):
    """A package's code would run at an installation that nobody approved, or never."""
    script = "node -e \"require('fs').writeFileSync('ran', process.env.HOME)\""
    registry.publish("server", bin="index.js", scripts={"postinstall": script})
    seal = await installer.seal(npx(), with_scripts=True)
    ran = (seal.tree / "node_modules/server/ran").read_text()
    assert seal.manifest.has_run_scripts
    assert seal.manifest.packages[0].script == "postinstall"
    assert ran != str(Path.home())


@needs_npm
@pytest.mark.nightly
async def test_no_login_of_a_registry_is_in_an_error_a_manifest_or_a_lock(registry, installer, tmp_path):
    """A password would be kept with the seal, or shown on the terminal."""
    registry.publish("server", bin="index.js")
    installer.login = "someone:hunter2"
    seal = await installer.seal(npx())
    error = await installer.refusal(npx("missing"))
    assert error.code == "not_found"
    kept = [path.read_bytes() for path in seal.folder.rglob("*") if path.is_file()]
    for text in (str(seal), error.message, error.remedy, *(data.decode(errors="replace") for data in kept)):
        assert "hunter2" not in text
        assert "someone" not in text


@needs_npm
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("published", "code"),
    [
        ({"integrity": "sha512-" + "A" * 86 + "=="}, "wrong_hash"),
        ({"files": {"README": "x", "readme": "y"}}, "hostile_tree"),
        ({"os": ["plan9"]}, "other_platform"),
        ({"files": {"large": os.urandom(3_000_000)}}, "too_large"),
        ({"files": {f"d/{number}": "" for number in range(600)}}, "too_large"),
        ({"dependencies": {"absent": "1"}}, "not_found"),
        ({"dependencies": {"x": "git+https://registry.invalid/x.git"}}, "unsealable"),
    ],
)
async def test_a_package_that_does_harm_is_refused(registry, installer, store, published, code):
    """A seal would hold what the registry does not answer for, or what another file system reads otherwise."""
    registry.publish("server", bin="index.js", **published)
    installer.facts = {"bounds": Bounds(total_bytes=2_000_000, entries=500)}
    error = await installer.refusal(npx())
    assert error.code == code, error.message
    assert store.digests() == []


@needs_npm
@pytest.mark.nightly
async def test_what_leads_out_of_a_package_is_not_installed(registry, installer, tmp_path):
    """A package could put files beside the tree, or name the machine's files as its own."""
    links = {"out": "../../../../etc/passwd", "absolute": "/etc/passwd"}
    registry.publish("server", bin={"server": "index.js", "sh": "../../../../bin/sh"}, links=links)
    registry.publish("evil", files={"../../../escaped": "x"})
    seal = await installer.seal(npx(beside=("evil",)))
    assert {program.name for program in seal.manifest.programs} == {"server"}
    assert not [path for path in seal.tree.rglob("*") if path.name in {"out", "absolute", "passwd", "sh"}]
    assert all(path.resolve().is_relative_to(seal.tree) for path in seal.tree.rglob("*"))


@needs_npm
@pytest.mark.nightly
async def test_a_version_that_is_not_there_any_more_is_said(registry, installer):
    """A user would look for the mistake in the network."""
    registry.publish("server", bin="index.js")
    kept = (await installer.seal(npx())).manifest.lock
    registry.npm.clear()
    registry.publish("server", "2.0.0", bin="index.js")
    registry.answers.pop("/npm/-/server-1.0.0.tgz")
    for request, lock in ((npx(spec="1.0.0"), ""), (npx(), kept)):
        assert (await installer.refusal(request, lock=lock)).code == "not_found"


@needs_npm
@pytest.mark.nightly
async def test_a_registry_that_is_away_is_said(registry, installer, unused_port):
    """A user would look for the mistake in the package."""
    assert registry.server is not None
    registry.server.port = unused_port
    assert (await installer.refusal(npx())).code == "registry_away"


@needs_npm
@pytest.mark.nightly
async def test_a_registry_whose_name_leads_nowhere_is_said(installer):
    """A user would look for the mistake in the package."""
    url = "https://registry.invalid"
    installer.environ = {"npm_config_registry": f"{url}/", "UV_DEFAULT_INDEX": f"{url}/simple"}
    for request in (npx(), uvx()):
        assert (await installer.refusal(request)).code == "registry_away"


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@needs_npm
async def test_a_registry_that_never_answers_is_waited_for_until_the_deadline(registry, installer):
    """An installation would wait for ever."""
    registry.hangs = True
    installer.facts = {"wall_s": 1.5}
    error = await installer.refusal(npx())
    assert (error.code, "1.5 s" in error.message) == ("registry_away", True)


def fake_npm(folder: Path, script: str) -> str:
    """A PATH on which `npm` is this shell script."""
    folder.mkdir()
    (folder / "npm").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "npm").chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


@pytest.mark.parametrize(
    ("script", "code", "message"),
    [
        ("kill -9 $$", "ended", "signal 9"),
        ("exec yes", "ended", "MiB of output"),
        ("exit 0", "ended", "wrote no package-lock.json"),
        ("ln -s /etc/passwd package-lock.json", "ended", "package-lock.json"),
        ("mkfifo package-lock.json", "ended", "package-lock.json"),
        ("echo '{' > package-lock.json", "ended", "lock cannot be read"),
        ("echo npm error code E404 >&2; echo npm error gone >&2; exit 1", "not_found", "gone"),
        (
            'echo \'{"lockfileVersion":3,"packages":{}}\' > package-lock.json; ln -sfn /etc node_modules',
            "hostile_tree",
            "no folder",
        ),
    ],
)
async def test_an_installer_that_does_not_do_its_work_leaves_nothing(installer, tmp_path, script, code, message):
    """Half an installation would be sealed, or a file of the machine read as what was installed."""
    installer.path = fake_npm(tmp_path / "bin", script)
    error = await installer.refusal(npx())
    assert error.code == code, error.message
    assert message in error.message


@pytest.mark.parametrize("max_bytes", [MAX_SEAL_BYTES, 3 * MAX_SEAL_BYTES])
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("truncate -s {bytes} large; echo >> large", "one file is larger than"),
        ("mkdir a; seq -f a/%g {files} | xargs touch; exec sleep 1000", "more than {files} files"),
    ],
)
async def test_a_row_that_raises_the_bound_of_its_package_raises_all(installer, tmp_path, script, message, max_bytes):
    """A large package could not be sealed, or its user would not be told which bound it passed, and how to raise it."""
    times = max_bytes // MAX_SEAL_BYTES
    installer.facts = {"bounds": Bounds(total_bytes=1 << 20, entries=50)}
    installer.path = fake_npm(tmp_path / "bin", script.format(bytes=times << 20, files=100 * times))
    error = await installer.refusal(npx(max_bytes=max_bytes))
    assert error.code == "too_large", error.message
    assert message.format(files=100 * times) in error.message
    assert "max_seal_bytes" in error.remedy


async def test_no_login_that_an_installer_prints_is_in_an_error(installer, tmp_path):
    """A password would be shown on the terminal and kept in a log."""
    installer.path = fake_npm(tmp_path / "bin", 'cat "$HOME/.npmrc" >&2; env >&2; exit 1')
    installer.login = "someone:hunter2-very-secret"
    error = await installer.refusal(npx())
    assert error.code == "ended"
    assert "hunter2" not in error.message
    assert "someone" not in error.message


async def test_a_cancelled_installation_leaves_no_process_and_no_file(installer, tmp_path):
    """Installers would run on after their client has gone."""
    installer.path = fake_npm(tmp_path / "bin", "sleep 1000 & exec sleep 1000")
    started = anyio.Event()
    async with anyio.create_task_group() as tasks:

        async def install_it() -> None:
            await installer.seal(npx(), tell=lambda _: started.set())

        tasks.start_soon(install_it)
        await started.wait()
        await anyio.sleep(0.3)
        tasks.cancel_scope.cancel()


async def test_a_daemon_with_many_packages_installs_few_at_once(installer, tmp_path):
    """The first start of forty servers would take all of the machine's memory."""
    installer.path = fake_npm(tmp_path / "bin", "exec sleep 1000")
    begun: list[Progress] = []
    async with anyio.create_task_group() as tasks:
        for number in range(install.AT_ONCE + 2):
            tasks.start_soon(lambda name: installer.seal(npx(name), tell=begun.append), f"server{number}")
        await eventually_async(lambda: len(begun) >= install.AT_ONCE)
        await anyio.sleep(0.3)
        tasks.cancel_scope.cancel()
    assert len(begun) == install.AT_ONCE


async def test_without_an_installer_its_name_is_said(installer):
    """A user would not know what to install."""
    installer.path = "/nowhere"
    for request, name in ((npx(), "npm"), (uvx(), "Python")):
        error = await installer.refusal(request)
        assert error.code == "no_runner"
        assert name in error.message


async def test_a_python_in_a_home_is_shown_to_uv(installer, tmp_path):
    """A Python of pyenv's or of another user's could not be sealed for, since no home is shown to an installer."""
    place = tmp_path / "someone" / "py"
    (place / "lib" / "python3").mkdir(parents=True)
    (place / "lib" / "python3" / "os.py").touch()
    (place / "bin").mkdir()
    said = {"executable": f"{place}/bin/python3", "tag": "t", "version": "3"}
    uv = f'[ -x {place}/bin/python3 ] && echo "error: it is shown" >&2\nexit 1'
    for name, script in (("python3", f"echo '{json.dumps(said)}'"), ("uv", uv)):
        (place / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (place / "bin" / name).chmod(0o755)
    (tmp_path / "uv").mkdir()
    (place / "bin" / "uv").rename(tmp_path / "uv" / "uv")
    installer.path = f"{place}/bin:{tmp_path}/uv:/usr/bin:/bin"
    error = await installer.refusal(uvx())
    assert error.message.endswith("it is shown"), error.message


async def test_an_installation_that_could_reach_every_host_is_not_begun(installer, tmp_path):
    """An installer would reach the user's network where the sandbox cannot keep it to the registry."""
    installer.path = fake_npm(tmp_path / "bin", "exit 0")
    installer.facts = {"machine": known_machine().capped(Tier.LANDLOCK)}
    error = await installer.refusal(npx())
    assert error.code == "no_sandbox"
    assert error.remedy.endswith("quarterdeck doctor")


CLI = """\
import importlib.metadata, importlib.resources, json, subprocess, sys
import dep, hidden

def main():
    data = importlib.resources.files("server").joinpath("data.txt").read_text()
    child = subprocess.check_output([sys.executable, "-P", "-c", "import dep; print(dep.__file__)"], text=True)
    json.dump([sys.argv, data, importlib.metadata.version("dep"), dep.__file__, child.strip()], sys.stdout)
    sys.exit("pip" in sys.modules or any("site-packages" in path or not path for path in sys.path))
"""
"""What a server may rely on in an environment that a runner makes for it."""


@pytest.mark.nightly
async def test_a_python_package_is_the_same_bytes_by_pip_and_uv(registry, installer, tmp_path):
    """Two machines would have different seals of the same packages, or a seal that does not start."""
    registry.publish_wheel("dep", scripts={"dep-tool": "dep:main"})
    files = {"server/cli.py": CLI, "server/data.txt": "hi", "x.pth": "below\n", "below/hidden.py": ""}
    registry.publish_wheel("server", files=files, scripts={"server": "server.cli:main"}, requires=("dep",))
    asked = uvx(args=("--utc",))
    installer.path = PYTHON
    seal = await installer.seal(asked)
    assert [(each.name, each.version, each.license) for each in seal.manifest.packages] == [
        ("dep", "1.0", "MIT"),
        ("server", "1.0", "MIT"),
    ]
    (tmp_path / "dep.py").write_text("raise SystemExit('a module of the working directory was imported')")
    place = f"{seal.tree}/site/dep/__init__.py"
    assert json.loads(output_of(seal, asked, tmp_path)) == [["server", "--utc"], "hi", "1.0", place, place]
    assert list(seal.tree.rglob("__pycache__/cli.*.pyc"))
    assert not (seal.tree / "site" / "bin").exists()

    registry.publish_wheel("dep", "1.5")
    elsewhere = SealStore(tmp_path / "elsewhere" / "seals")
    again = await installer.seal(asked, elsewhere, lock=seal.manifest.lock)
    assert again.digest == seal.digest
    if (uv := shutil.which("uv", path=os.environ["PATH"])) is not None:
        installer.path = f"{os.path.dirname(uv)}:{PATH}"
        by_uv = await installer.seal(asked, elsewhere, lock=seal.manifest.lock)
        assert by_uv.digest == seal.digest
        assert {path.stat().st_nlink for path in by_uv.tree.rglob("*") if path.is_file()} == {1}


@pytest.mark.parametrize(("room", "code"), [("unlimited", "ended"), ("10", "no_space")])
def test_a_compiled_file_that_is_cut_by_a_full_disk_is_found(tmp_path, room, code):
    """A server sealed while the disk was full would end at its first import, from then on."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "large.py").write_text(f"X = {'x' * 20_000!r}\n")
    (tmp_path / "site" / "of_python_2.py").write_text("print 'x'\n")
    words = ("sh", "-c", f'ulimit -f {room}; exec "$0" "$@"', sys.executable, *python.COMPILE)
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert python.error_of(done.stdout + done.stderr, "compile it").code == code, done


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("published", "code"),
    [
        ({"digest": "0" * 64}, "wrong_hash"),
        ({"files": {"server/A.py": "", "server/a.py": ""}}, "hostile_tree"),
        ({"tag": "cp39-cp39-win_amd64"}, "not_found"),
        ({"requires": ("absent",)}, "not_found"),
        ({"requires": ("x @ https://registry.invalid/x-1.0-py3-none-any.whl",)}, "registry_away"),
    ],
)
async def test_a_wheel_that_does_harm_is_refused(registry, installer, store, published, code):
    """A seal would hold what the index does not answer for, or what another file system reads otherwise."""
    registry.publish_wheel("server", scripts={"server": "server:main"}, **published)
    installer.path = PYTHON  # without uv, which says more
    error = await installer.refusal(uvx())
    assert error.code == code, error.message
    assert store.digests() == []


@pytest.mark.nightly
async def test_a_lock_names_no_other_index_and_no_file(registry, installer):
    """The lock of a repository could have anything installed, or read."""
    error = await installer.refusal(uvx(), lock="-r /etc/passwd\n")
    assert error.code == "unsealable"
