"""What a confined command reaches in each network mode, tried with the clients that servers really use."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

import pytest
from support.config.places import short_folder
from support.processes.forks import Forks
from support.processes.identities import ROOT_BY_NIGHT, user_or_root
from support.sandbox.machine_facts import bubblewrap_missing, not_installed
from support.sandbox.sandbox_commands import Runner, bare_repository, certify, echo, https, other_name

from quarterdeck_sandbox.network.namespace import own_addresses

RAW: Final = """
import socket, sys
for place in sys.argv[1:]:
    host, _, port = place.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), 5) as one:
            one.sendall(b"hello")
            one.shutdown(socket.SHUT_WR)
            print(place, b"".join(iter(lambda: one.recv(100), b"")).decode())
    except OSError as error:
        print(place, type(error).__name__)
"""
"""A raw client: each place with what it answered, or with the error."""

ASYNCIO: Final = """
import asyncio, ssl, sys, urllib.request
async def main(host, port):
    reader, writer = await asyncio.open_connection(host, port, ssl=ssl.create_default_context())
    writer.write(b"GET /hello.txt HTTP/1.0\\r\\n\\r\\n")
    print((await reader.read()).split(b"\\r\\n\\r\\n")[1].decode())
print(urllib.request.urlopen(f"https://{sys.argv[1]}:{sys.argv[2]}/hello.txt").read().decode())
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""

NODE: Final = """
const url = process.argv[1];
fetch(url).then(answer => answer.text()).then(console.log).catch(error => console.log("failed", error.cause?.code));
"""

RESOLVE: Final = """
import socket, sys
for name in sys.argv[1:]:
    try:
        print(name, socket.getaddrinfo(name, 443)[0][4][0])
    except OSError as error:
        print(name, type(error).__name__)
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for server in ("9.9.9.9", "127.0.0.53", "169.254.169.254"):
    try:
        one.connect((server, 53))
        one.settimeout(1)
        one.send(bytes.fromhex("000101000001000000000000") + b"\\x07example\\x03com\\x00\\x00\\x01\\x00\\x01")
        print(server, one.recv(100))
    except OSError as error:
        print(server, type(error).__name__)
"""

OWN_LOOPBACK: Final = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 5) as one:
    server.accept()[0].sendall(b"mine")
    print(one.recv(9).decode())
"""


@dataclass(frozen=True, slots=True)
class World:
    """Services outside: `echo` twice, `web` over TLS, and what both are called."""

    runner: Runner
    files: Path
    name: str
    web: int
    echoes: tuple[int, int]

    @property
    def certificate(self) -> str:
        """What the web server's clients must trust."""
        return str(self.files / "lab.pem")


@pytest.fixture(scope="module", params=ROOT_BY_NIGHT)
def world(request: pytest.FixtureRequest, forks: Forks) -> Iterator[World]:
    """For the ordinary user, and root by night; skips where there is no bubblewrap."""
    who = user_or_root(request.param)
    if reason := who.missing or bubblewrap_missing():
        pytest.skip(reason)
    name = other_name()
    if not name:
        pytest.skip("this machine has no name that leads to its loopback")
    with ExitStack() as cleanup:
        root = cleanup.enter_context(short_folder(0o755))
        files = root / "files"
        files.mkdir(mode=0o755)
        who.own(root)
        (files / "hello.txt").write_text("hello over tls")
        certify(files / "lab.pem", name, "localhost")
        if shutil.which("git"):
            bare_repository(files / "project.git")
        yield World(
            Runner(who, root, forks),
            files,
            name,
            cleanup.enter_context(https(files, files / "lab.pem")),
            (cleanup.enter_context(echo()), cleanup.enter_context(echo())),
        )


def python(world: World, networks: list[str], code: str, *words: str) -> dict[str, str]:
    """What Python code said, a line each: the first word to the rest."""
    options = [word for network in networks for word in ("--network", network)]
    done = world.runner.run(*options, "--", "/usr/bin/python3", "-c", code, *words)
    assert done.returncode == 0, done.stderr
    return dict(line.partition(" ")[::2] for line in done.stdout.splitlines())


@pytest.fixture(autouse=True)
def _system_python() -> None:
    if reason := not_installed("/usr/bin/python3"):
        pytest.skip(reason)


def test_listed_places_are_reached_and_nothing_else(world: World) -> None:
    """A server would reach what nobody listed, or not what somebody did."""
    one, two = world.echoes
    listed = [f"{world.name}:{one}", f"localhost:{two}"]
    others = [f"{world.name}:{two}", f"localhost:{one}", f"127.0.0.1:{one}", f"{world.name}:{world.web}", "9.9.9.9:443"]
    found = python(world, listed, RAW, *listed, *others)
    assert found.pop(listed[0]) == f"{one} hello"
    assert found.pop(listed[1]) == f"{two} hello"
    assert set(found) == set(others)
    assert set(found.values()) <= {"ConnectionRefusedError", "OSError"}


def test_an_address_is_reached_when_the_list_holds_it_itself(world: World) -> None:
    """A database of the user's network, which has no public name, could not be listed at all."""
    own = sorted(str(one) for one in own_addresses() if isinstance(one, IPv4Address) and not one.is_loopback)
    if not own:
        pytest.skip("this machine has no address but loopback's")
    with echo(own[0]) as port, echo(own[0]) as other:
        place, unlisted = f"{own[0]}:{port}", f"{own[0]}:{other}"
        found = python(world, [place], RAW, place, unlisted)
    assert found == {place: f"{port} hello", unlisted: "ConnectionRefusedError"}


def test_pythons_clients_talk_tls_to_a_listed_host(world: World) -> None:
    """A name that is mapped to a loopback address must still match its certificate."""
    options = ["--network", f"{world.name}:{world.web}", "--read", str(world.files)]
    code = ["/usr/bin/python3", "-c", ASYNCIO, world.name, str(world.web)]
    done = world.runner.run(*options, "--", *code, SSL_CERT_FILE=world.certificate)
    assert done.stdout == "hello over tls\n" * 2, done.stderr


def test_nodes_fetch_reaches_a_listed_host_and_no_other(world: World) -> None:
    """Most servers are written for node, whose fetch takes no proxy from its environment."""
    if reason := not_installed("/usr/bin/node"):
        pytest.skip(reason)
    node = "/usr/bin/node"
    options = ["--network", f"{world.name}:{world.web}", "--read", str(world.files)]
    trust = {"NODE_EXTRA_CA_CERTS": world.certificate}
    url = f"https://{world.name}:{world.web}/hello.txt"
    assert world.runner.run(*options, "--", node, "-e", NODE, url, **trust).stdout == "hello over tls\n"
    refused = world.runner.run(*options, "--", node, "-e", NODE, url.replace(world.name, "localhost"), **trust)
    assert refused.stdout == "failed ECONNREFUSED\n"
    unknown = world.runner.run(*options, "--", node, "-e", NODE, "https://example.com/", **trust)
    assert unknown.stdout.startswith("failed E")


def test_git_clones_over_https_from_a_listed_host(world: World) -> None:
    """An agent's git would need the whole network."""
    if reason := not_installed("/usr/bin/git"):
        pytest.skip(reason)
    options = ["--network", f"{world.name}:{world.web}", "--read", str(world.files)]
    url = f"https://{world.name}:{world.web}/project.git"
    script = 'git clone --quiet "$0" "$HOME/clone" && git -C "$HOME/clone" log --format=%s'
    done = world.runner.run(*options, "--", "/bin/sh", "-c", script, url, GIT_SSL_CAINFO=world.certificate)
    assert done.stdout == "carried through a relay\n", done.stderr


def test_names_are_no_way_out(world: World) -> None:
    """Whoever can ask for names can send what it read, a label at a time."""
    found = python(world, [f"{world.name}:{world.web}"], RESOLVE, world.name, "localhost", "example.com")
    assert found.pop(world.name) == "127.64.0.1"
    assert found.pop("localhost") == "127.0.0.1"
    assert found.pop("example.com") == "gaierror"
    assert set(found.values()) <= {"OSError", "ConnectionRefusedError", "TimeoutError"}


def test_without_a_network_nothing_is_reached(world: World) -> None:
    """A server that was told `none` could still talk to the host's services."""
    places = [f"localhost:{world.echoes[0]}", f"127.0.0.1:{world.echoes[0]}", "9.9.9.9:443"]
    found = python(world, ["none"], RAW, *places)
    assert set(found.values()) <= {"ConnectionRefusedError", "OSError", "PermissionError"}


def test_loopback_is_its_own(world: World) -> None:
    """A server with helpers of its own could not talk to them; or it could, and to the host's as well."""
    assert python(world, ["loopback"], OWN_LOOPBACK) == {"mine": ""}
    place = f"127.0.0.1:{world.echoes[0]}"
    assert python(world, ["loopback"], RAW, place) == {place: "ConnectionRefusedError"}


def test_the_full_network_is_said_to_be_open(world: World) -> None:
    """A user would believe that the host's own services are out of reach."""
    place = f"127.0.0.1:{world.echoes[0]}"
    done = world.runner.run("--network", "full", "--", "/usr/bin/python3", "-c", RAW, place)
    assert done.stdout == f"{place} {world.echoes[0]} hello\n"
    assert "can reach your local network, this machine's own services and cloud metadata" in done.stderr
