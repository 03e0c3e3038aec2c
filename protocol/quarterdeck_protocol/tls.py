"""TLS as the certificates of a remote server's row want it, for its worker and its login.  Impure: reads files."""

import ssl

from .plain_words import plain_words


class CertificateFileError(Exception):
    """A file of a row cannot be used; the text says which key of the row names it, and why."""


def tls_context(
    ca_file: str = "", client_cert: str = "", client_key: str = "", *, with_system: bool = False
) -> ssl.SSLContext:
    """For connections on behalf of a row; no variable of our own environment counts.

    Args:
        ca_file: the authorities whose certificates are accepted, in place of the system's; empty for the system's.
        client_cert: the certificate that we show; empty for none.
        client_key: its key, where that is in another file.
        with_system: whether the system's authorities are accepted beside those of `ca_file`.

    Raises:
        CertificateFileError: a file cannot be used.
    """
    try:
        if ca_file and not with_system:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # the default one heeds SSLKEYLOGFILE
            context.load_verify_locations(ca_file)
        else:
            from httpx2 import create_ssl_context  # where it is needed: it costs, and most servers are processes

            context = create_ssl_context(trust_env=False)
            if ca_file:
                context.load_verify_locations(ca_file)
    except OSError as error:
        raise CertificateFileError(_unusable("ca_file", ca_file, error)) from error
    if client_cert:
        try:
            # A key that wants a passphrase gets none: the terminal, if there is one, is not ours to ask at.
            context.load_cert_chain(client_cert, client_key or None, password="")
        except OSError as error:
            raise CertificateFileError(_unusable("client_cert or client_key", client_cert, error)) from error
    return context


def _unusable(key: str, path: str, error: OSError) -> str:
    """Of a TLS library's error, its number says nothing to a person."""
    why = "it does not hold what it should, in PEM" if isinstance(error, ssl.SSLError) else plain_words(error)
    return f"{key} cannot be used: {path}: {why}"
