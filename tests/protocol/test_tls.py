"""A row's certificate files: accepted as they are, or the configuration's fault in words."""

import ssl
from pathlib import Path

import pytest
from support.servers.certificates import Files, make_certificate

from quarterdeck_protocol.tls import CertificateFileError, tls_context


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def authorities(context: ssl.SSLContext) -> int:
    return context.cert_store_stats()["x509_ca"]


def test_a_rows_authorities_stand_in_place_of_the_systems_or_beside_them(files: Files) -> None:
    """A server that its user pins could be played by any authority, or a public issuer not be reached."""
    system = authorities(tls_context())
    assert authorities(tls_context(files.cert)) == 1
    assert authorities(tls_context(files.cert, with_system=True)) == system + 1


def test_no_variable_of_our_own_environment_counts(
    files: Files, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever sets one would decide whom a login trusts, or read what it says."""
    keys = tmp_path / "keys"
    monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
    before = authorities(tls_context())
    monkeypatch.setenv("SSL_CERT_FILE", files.cert)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert authorities(tls_context()) == before
    assert tls_context(files.cert).keylog_filename is tls_context().keylog_filename is None
    assert not keys.exists()


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("/no/such.pem",), "ca_file cannot be used: /no/such.pem: no"),
        (("{key}",), "ca_file cannot be used"),
        (("", "{cert}"), "client_cert or client_key cannot be used"),
        (("", "{cert}", "{locked_key}"), "client_cert or client_key cannot be used"),
    ],
    ids=["missing", "no-certificate", "no-key", "locked"],
)
@pytest.mark.parametrize("with_system", [False, True])
def test_a_file_that_cannot_be_used_is_told_by_its_key(
    files: Files, names: tuple[str, ...], said: str, *, with_system: bool
) -> None:
    """A user would look for the fault at the server, or be asked for a passphrase where nobody sees it."""
    given = [name.format(cert=files.cert, key=files.key, locked_key=files.locked_key) for name in names]
    with pytest.raises(CertificateFileError) as caught:
        tls_context(*given, with_system=with_system)
    assert str(caught.value).startswith(said)
