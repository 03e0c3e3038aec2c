"""Text that clients carry for us: sealed, so that nobody reads or makes one, and bound to its client and request.

It comes back from a client, so from an attacker (specification of 2026-07-28, "Multi round-trip requests", security).
"""

import base64
import binascii
import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

MAX_CHARS: Final = 1024 * 1024
"""Of a text that comes back: a server's own state may be in it."""

_NONCE_BYTES: Final = 12


class Seal:
    """Seals and opens; its key lives as long as it does."""

    def __init__(self) -> None:
        self._cipher = AESGCM(AESGCM.generate_key(bit_length=256))

    def close(self, data: bytes, bound_to: bytes) -> str:
        """`data` as text; it opens for the same `bound_to` alone."""
        nonce = os.urandom(_NONCE_BYTES)
        return base64.urlsafe_b64encode(nonce + self._cipher.encrypt(nonce, data, bound_to)).decode()

    def open(self, text: str, bound_to: bytes) -> bytes | None:
        """What was sealed; None for a text that is none of ours, was changed, or is bound to something else."""
        if not text or len(text) > MAX_CHARS:
            return None
        try:
            data = base64.b64decode(text, altchars=b"-_", validate=True)
            return self._cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], bound_to)
        except (binascii.Error, ValueError, InvalidTag):
            return None
