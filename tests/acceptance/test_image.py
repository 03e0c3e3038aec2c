"""The image: what its files promise, and what they make where a container engine is installed."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from support.waiting import eventually

ROOT = Path(__file__).parents[2]
NEEDED = ("mmdebstrap", "buildah", "podman")
BASE, IMAGE = "localhost/quarterdeck-test-base", "localhost/quarterdeck-test"

CAN_BUILD = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, NEEDED)), reason=f"needs root, and {', '.join(NEEDED)}"
)


def service() -> dict[str, Any]:
    return YAML(typ="safe").load(ROOT / "compose.yaml")["services"]["quarterdeck"]  # type: ignore[no-any-return]


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


@pytest.mark.core
def test_the_service_has_no_more_than_it_needs_and_time_to_drain() -> None:
    """A team's servers would run beside root, or its calls be cut off at each restart."""
    last_stage = (ROOT / "Containerfile").read_text().rpartition("\nFROM ")[2].splitlines()
    assert [line.split()[1] for line in last_stage if line.startswith("USER ")] == ["deck"]
    found = service()
    assert found["read_only"] is True
    assert found["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in found["security_opt"]
    assert not found.keys() & {"privileged", "cap_add", "user", "network_mode", "pid"}
    assert all(port.startswith("127.0.0.1:") for port in found["ports"])
    # Beside the calls' own seconds: the last answers, then servers, which are killed after three times 2 s.
    assert seconds(found["stop_grace_period"]) >= int(found["environment"]["QUARTERDECK_DRAIN"]) + 15


def run(*words: str, within_s: float = 120.0) -> str:
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=within_s, check=False)
    assert ended.returncode == 0, (words, ended.stdout[-2000:], ended.stderr[-2000:])
    return ended.stdout


def inside(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["podman", "exec", IMAGE.rpartition("/")[2], *words], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture
def container(tmp_path: Path) -> Iterator[str]:
    """The service as `compose.yaml` has it, from an image that is built here on Debian's packages."""
    base = tmp_path / "base.tar"
    run("mmdebstrap", "--quiet", "--variant=minbase", "--include=ca-certificates", "trixie", str(base), within_s=600)
    run("podman", "import", "--quiet", str(base), BASE)
    trusted = [path for path in ("/etc/ssl/certs", "/etc/pip.conf") if os.path.exists(path)]
    volumes = [word for path in trusted for word in ("--volume", f"{path}:{path}:ro")]
    arguments = ("--build-arg", f"BASE={BASE}", "--build-arg", "PROGRAMS=")
    build = ("buildah", "bud", "--quiet", "--isolation", "chroot", "--network", "host", *volumes, *arguments)
    run(*build, "-t", IMAGE, "-f", "Containerfile", ".", within_s=900)
    found, name = service(), IMAGE.rpartition("/")[2]
    options: Sequence[str] = (
        *("--read-only", "--tmpfs", *found["tmpfs"], "--cap-drop", *found["cap_drop"], "--network", "none"),
        *(word for each in found["security_opt"] for word in ("--security-opt", each)),
        *(word for key, text in found["environment"].items() for word in ("--env", f"{key}={text}")),
        # The engine's own defaults are above what a session here may have.
        *("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"),
    )
    runtime = ("--runtime", "runc") if shutil.which("runc") else ()
    try:
        run("podman", *runtime, "run", "--detach", "--name", name, *options, IMAGE)
        yield name
    finally:
        subprocess.run(["podman", "rm", "--force", "--volumes", name], capture_output=True, check=False)
        for image in (IMAGE, BASE):
            subprocess.run(["podman", "rmi", "--force", image], capture_output=True, check=False)


@pytest.mark.nightly
@CAN_BUILD
def test_the_image_is_built_serves_confined_and_ends_when_told(container: str) -> None:
    """Whoever follows docs/operate.md would have an image that is never ready, or servers without walls."""
    _, *health = service()["healthcheck"]["test"]
    eventually(lambda: inside(*health).returncode == 0, 60.0)
    assert inside("id", "--user").stdout == "10001\n"
    assert inside("touch", "/opt/quarterdeck/new").returncode != 0
    found = json.loads(inside("quarterdeck", "doctor", "--json").stdout)
    assert (found["tier"], found["runs"], found["machine"]["container"]) == ("bubblewrap", True, "podman")
    assert inside("quarterdeck", "demo").returncode == 0
    run("podman", "stop", "--time", str(seconds(service()["stop_grace_period"])), container)
    assert run("podman", "inspect", "--format", "{{.State.ExitCode}}", container) == "0\n"
