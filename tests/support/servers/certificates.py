"""Certificates of tests' own: an authority that no system knows."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from ssl import CERT_REQUIRED, Purpose, SSLContext, create_default_context

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True)
class Files:
    """A certificate for 127.0.0.1, which is its own authority."""

    cert: str
    key: str
    locked_key: str

    def server_context(self, *, wants_certificate: bool = False) -> SSLContext:
        """For a server with this certificate; one that wants a certificate of the same authority."""
        context = create_default_context(Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.cert, self.key)
        if wants_certificate:
            context.load_verify_locations(self.cert)
            context.verify_mode = CERT_REQUIRED
        return context


def make_certificate(folder: Path) -> Files:
    """Made anew, valid for an hour."""
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
