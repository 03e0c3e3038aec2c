"""TLS as the certificates of a remote server's row want it, for its worker and its login.  Impure: reads files."""

import ssl

from .plain_words import plain_words


class CertificateFileError(Exception):
    """A file of a row cannot be used; the text says which key of the row names it, and why."""


def tls_context(
    ca_file: str = "", client_cert: str = "", client_key: str = "", *, with_system: bool | None = None
) -> ssl.SSLContext:
    """Make a context for connections on behalf of a row; no variable of our own environment counts.

    `client_key` may lie in `client_cert`.  `with_system` says whether the system's authorities are accepted, which take
    50 ms to read; by default they are, unless `ca_file` replaces them.

    Raises:
        CertificateFileError: a file cannot be used.
    """
    try:
        if not ca_file if with_system is None else with_system:
            from httpx2 import create_ssl_context  # where it is needed: it costs, and most servers are processes

            context = create_ssl_context(trust_env=False)
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # the default one heeds SSLKEYLOGFILE
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
    why = "it does not hold what it should, in PEM" if isinstance(error, ssl.SSLError) else plain_words(error)
    return f"{key} cannot be used: {path}: {why}"
