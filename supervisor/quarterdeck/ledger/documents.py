"""The hash by which a document is kept and approved.  Pure."""

import hashlib

import msgspec


def hash_of(body: bytes) -> str:
    """The hash of a JSON document; of one that cannot be read, that of its bytes."""
    try:
        body = msgspec.json.encode(msgspec.json.decode(body), order="sorted")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass  # deeper than any reader goes, or half a character: its very bytes count
    return hashlib.sha256(body).hexdigest()
