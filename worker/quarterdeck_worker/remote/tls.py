"""By which certificates a remote server is known, and which one we show it."""

import ssl

import httpx2

from quarterdeck_protocol.faults import Delivery, FaultKind, FaultRecord, RemoteCause
from quarterdeck_protocol.link.frames import RemoteServer
from quarterdeck_protocol.plain_words import plain_words
from quarterdeck_worker.server import ServerFault


def tls_context(server: RemoteServer) -> ssl.SSLContext:
    """For connections to the server; by the system's authorities where its row names none.

    Raises:
        ServerFault: a file cannot be used.
    """
    try:
        if server.ca_file:
            context = ssl.create_default_context(cafile=server.ca_file)
        else:
            context = httpx2.create_ssl_context(trust_env=False)
    except OSError as error:
        raise _unusable("ca_file", server.ca_file, error) from error
    if server.client_cert:
        try:
            # A key that wants a passphrase gets none: the terminal, if there is one, is not ours to ask at.
            context.load_cert_chain(server.client_cert, server.client_key or None, password="")
        except OSError as error:
            raise _unusable("client_cert or client_key", server.client_cert, error) from error
    return context


def _unusable(key: str, path: str, error: OSError) -> ServerFault:
    """Of a TLS library's error, its number says nothing to a person."""
    why = "it does not hold what it should, in PEM" if isinstance(error, ssl.SSLError) else plain_words(error)
    message = f"{key} cannot be used: {path}: {why}"
    cause = RemoteCause.of(error)
    return ServerFault(FaultRecord(FaultKind.TRANSPORT, message, "config_invalid", Delivery.NOT_SENT, cause))
