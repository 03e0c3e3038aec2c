"""The resources to which a server's results have lately linked: clients read them, though no list has them.  Pure."""

from typing import Final

import msgspec

MAX_URIS: Final = 1_000
"""Remembered of one server, the latest."""

MAX_RESULT_BYTES: Final = 1024 * 1024
"""Bytes of a result that is looked through; one with links in it is a list of them."""

MAX_URI_CHARS: Final = 8 * 1024
"""As of a resource that is listed."""

LINK_MARK: Final = b'"resource_link"'
"""Bytes of every result that links to a resource."""


class _Block(msgspec.Struct, gc=False):
    type: str = ""
    uri: str = ""


class _Result(msgspec.Struct, gc=False):
    content: list[_Block] = []


class LinkedUris:
    """The links in one server's results."""

    def __init__(self) -> None:
        self._uris: dict[str, None] = {}

    def __contains__(self, uri: str) -> bool:
        return uri in self._uris

    def note(self, result: bytes) -> None:
        """Remember the links of a result that has the `LINK_MARK`; most results have not."""
        if len(result) > MAX_RESULT_BYTES:
            return
        try:
            blocks = _results.decode(result).content
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return  # odd as it is, it is its client's to judge
        for block in blocks:
            if block.type == "resource_link" and 0 < len(block.uri) <= MAX_URI_CHARS:
                self._uris.pop(block.uri, None)
                self._uris[block.uri] = None
        for uri in list(self._uris)[: max(0, len(self._uris) - MAX_URIS)]:
            del self._uris[uri]


_results: Final = msgspec.json.Decoder(_Result)
