"""A server is known by the certificates that its row names, shown ours, and reached through its row's proxy alone."""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import anyio
import httpx2
import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, JSONRPCResponse
from support.servers.played_http import HttpAsked, answer, echoed, played_http
from support.waiting import PATIENCE_S

from quarterdeck_protocol.faults import Delivery
from quarterdeck_protocol.link.frames import RemoteServer
from quarterdeck_worker.remote.client import StatusRecorder
from quarterdeck_worker.remote.connection import dial
from quarterdeck_worker.remote.tls import tls_context
from quarterdeck_worker.server import ServerFault

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Files:
    """A certificate for 127.0.0.1, which is its own authority."""

    cert: str
    key: str
    locked_key: str


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Made anew, valid for an hour."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "played")])
    now = datetime.now(UTC)
    cert = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )

    def written(name: str, body: bytes) -> str:
        (folder / name).write_bytes(body)
        return str(folder / name)

    def as_pem(lock: serialization.KeySerializationEncryption) -> bytes:
        return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)

    return Files(
        written("cert.pem", cert.public_bytes(serialization.Encoding.PEM)),
        written("key.pem", as_pem(serialization.NoEncryption())),
        written("locked.pem", as_pem(serialization.BestAvailableEncryption(b"pass"))),
    )


@asynccontextmanager
async def tls_server(files: Files, *, wants_certificate: bool = False) -> AsyncIterator[str]:
    """A server with this certificate; one that wants a certificate of the same authority."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.cert, files.key)
    if wants_certificate:
        context.load_verify_locations(files.cert)
        context.verify_mode = ssl.CERT_REQUIRED

    async def play(asked: HttpAsked) -> bytes:
        return echoed(asked)

    async with played_http(play, context) as url:
        yield url


async def answers(server: RemoteServer) -> bool:
    """Whether the server answers."""
    with anyio.fail_after(PATIENCE_S):
        async with dial(server, 1_000_000, StatusRecorder(), legacy=False) as (read, write):
            await write.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="ping")))
            return isinstance((await read.receive()).message, JSONRPCResponse)


async def test_a_certificate_of_an_authority_of_ones_own_is_accepted_where_the_row_names_it(files: Files) -> None:
    """A company's own server could not be used, or anybody's certificate be accepted."""
    async with tls_server(files) as url:
        assert await answers(RemoteServer(url, ca_file=files.cert))
        with pytest.raises(ExceptionGroup) as caught:
            await answers(RemoteServer(url))
        assert caught.group_contains(httpx2.ConnectError, match="(?i)certificate")


async def test_a_server_that_wants_a_certificate_is_shown_the_rows(files: Files) -> None:
    """It would refuse us."""
    async with tls_server(files, wants_certificate=True) as url:
        row = RemoteServer(url, ca_file=files.cert)
        assert await answers(msgspec.structs.replace(row, client_cert=files.cert, client_key=files.key))
        with pytest.raises(ExceptionGroup) as caught:
            await answers(row)
        assert caught.group_contains(httpx2.TransportError)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (lambda files: RemoteServer("https://h/", ca_file="/no/such.pem"), "ca_file cannot be used: /no/such.pem: no"),
        (lambda files: RemoteServer("https://h/", ca_file=files.key), "ca_file cannot be used"),
        (lambda files: RemoteServer("https://h/", client_cert=files.cert), "client_cert or client_key cannot be used"),
        (
            lambda files: RemoteServer("https://h/", client_cert=files.cert, client_key=files.locked_key),
            "client_cert or client_key cannot be used",
        ),
    ],
    ids=["missing", "no-certificate", "no-key", "locked"],
)
def test_a_file_that_cannot_be_used_is_the_configurations_fault(
    files: Files, broken: Callable[[Files], RemoteServer], said: str
) -> None:
    """A user would look for the fault at the server, or be asked for a passphrase where nobody sees it."""
    with pytest.raises(ServerFault) as caught:
        tls_context(broken(files))
    record = caught.value.record
    assert (record.code, record.delivery) == ("config_invalid", Delivery.NOT_SENT)
    assert record.message.startswith(said)


async def test_the_rows_proxy_is_used_and_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a server is sent would go through whatever our environment names."""
    asked_of: list[str] = []

    async def play(asked: HttpAsked) -> bytes:
        asked_of.append(asked.path)
        return echoed(asked)

    async def refuse(asked: HttpAsked) -> bytes:
        asked_of.append("the environment's")
        return answer(502)

    async with played_http(play) as url, played_http(refuse) as other:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, other.removesuffix("/mcp"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
        assert await answers(RemoteServer(url))
        assert await answers(RemoteServer("http://far.invalid/mcp", proxy=url.removesuffix("/mcp")))
    assert asked_of == ["/mcp", "http://far.invalid/mcp"]
