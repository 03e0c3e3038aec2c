"""What every test shares."""

import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# Hundreds of processes start from these sources: each would compile them anew where nobody keeps what was compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop() -> Generator[None, object, object]:
    """Have a run's tests share a state directory, zygotes that are forks, and few authorities.

    No fixture: thousands of tests would each ask for it.
    """
    from support.config.places import own_state, usual_state_dir
    from support.processes.commands import fork_server
    from support.processes.zygotes import forked_from

    from quarterdeck.fleet.workers import interpreters

    with own_state(usual_state_dir()), few_authorities(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreters, "isolated", forked_from(fork_server))
        return (yield)


@contextmanager
def few_authorities() -> Iterator[None]:
    """Have each HTTP client of this process read one of the system's authorities: all of them take 50 ms."""
    import ssl

    paths = ssl.get_default_verify_paths()
    with tempfile.NamedTemporaryFile(suffix=".pem") as alone, pytest.MonkeyPatch.context() as patch:
        if os.path.isfile(paths.openssl_cafile):
            first, end, _ = Path(paths.openssl_cafile).read_bytes().partition(b"-----END CERTIFICATE-----")
            alone.write(first + end + b"\n")
            alone.flush()
            few = paths._replace(openssl_cafile=alone.name, openssl_capath="")
            patch.setattr(ssl, "get_default_verify_paths", lambda: few)
        yield


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def pytest_addoption(parser: pytest.Parser) -> None:
    from support.suite import tiers
    from support.suite.better_machine import BY_TIER_OPTION, OPTION

    parts = [*map(str, range(tiers.PARTS)), "all"]
    parser.addoption(tiers.OPTION, choices=parts, help="only this part of the nightly tests and generated examples")
    parser.addoption(OPTION, action="store_true", help="only what was skipped, or depends on a sandbox's network")
    parser.addoption(BY_TIER_OPTION, action="store_true", help="only what depends on the sandbox's tier")


def pytest_configure(config: pytest.Config) -> None:
    from support.suite.better_machine import BetterMachine
    from support.suite.collecting import FewReports, Turns
    from support.suite.tiers import Tiers

    config.pluginmanager.register(Turns())
    config.pluginmanager.register(FewReports())
    config.pluginmanager.register(Tiers(config))
    config.pluginmanager.register(BetterMachine(config))
    if not hasattr(config, "workerinput"):
        _compile_gate()


def _compile_gate() -> None:
    """Compile the gate anew where its sources have changed: nothing is started by one of other sources."""
    from quarterdeck_sandbox.doctor.probe import try_gate

    if sys.platform == "linux" and not try_gate(os.uname().machine)[0]:
        script = Path(__file__).resolve().parents[1] / "sandbox/native/compile_gate.py"
        subprocess.run([sys.executable, str(script)], check=False)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect thousands of tests, which leaves next to no garbage behind, without looking for any."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Freeze what was collected, without looking for garbage: either look at thousands of tests takes seconds."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two more than there are processors: tests with processes wait for a part of their time, and each collects all."""
    from support.suite.tiers import is_core_alone

    return (os.cpu_count() or 2) + (0 if is_core_alone(config) else 2)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Idle workers take from busy ones: tests with processes stand together, and one worker would be given most."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)
