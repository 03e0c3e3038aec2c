"""Ask a running `serve`: blocking, and light enough for a command that answers at once."""

import os
import socket
from pathlib import Path
from typing import Final

from quarterdeck.common.local_socket import read_key

from .protocol import (
    KEY_NAME,
    MAX_REQUEST_BYTES,
    SOCKET_NAME,
    Answer,
    BadLineError,
    Call,
    Request,
    Restart,
    Tools,
    Wake,
    decode_answer,
    encode,
)

CONNECT_S: Final = 5.0
"""Seconds to be accepted by a living local process."""

ANSWER_S: Final = 30.0
"""Seconds for any answer that waits for no server."""


class TooLargeError(ValueError):
    """The request is longer than a serve reads; the text says so."""


class NotServingError(ConnectionError):
    """No process listens: it has just ended, or is ending."""


class NoAnswerError(ConnectionError):
    """A process listens but does not answer as it should; the text says how."""


def waits_for_servers(request: Request) -> bool:
    """Whether the answer comes only once servers have started or answered, which has deadlines of its own."""
    return isinstance(request, Call | Restart | Wake) or (isinstance(request, Tools) and request.refresh)


def ask(directory: Path, request: Request) -> Answer:
    """Return the answer of the process with this runtime directory.

    Raise TooLargeError if the request is longer than `MAX_REQUEST_BYTES`, NotServingError if no request was sent, and
    NoAnswerError if the request may have been carried out.
    """
    line = encode(request)
    if len(line) > MAX_REQUEST_BYTES:
        raise TooLargeError(f"the request has {len(line):,} bytes: at most {MAX_REQUEST_BYTES:,} can be sent")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(CONNECT_S)
        try:
            connection.connect(os.fsencode(directory / SOCKET_NAME))
        except OSError as error:
            raise NotServingError(f"{directory}: {error.strerror or error}") from error
        connection.settimeout(None if waits_for_servers(request) else ANSWER_S)
        try:
            key = read_key(directory / KEY_NAME)  # a serve has none that has just ended
            connection.sendall((f"{key}\n".encode() if key else b"") + line)
            with connection.makefile("rb") as answers:
                reply = answers.readline()
        except TimeoutError:
            raise NoAnswerError(f"the running serve does not answer within {ANSWER_S:g} s") from None
        except OSError as error:
            raise NoAnswerError(f"the running serve closed the connection: {error.strerror or error}") from error
    if not reply.endswith(b"\n"):
        raise NoAnswerError("the running serve ended before it answered")
    try:
        return decode_answer(reply)
    except BadLineError as error:
        raise NoAnswerError(f"the running serve is of another version: {error}") from error
