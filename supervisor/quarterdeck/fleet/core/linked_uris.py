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


class LinkedUris(dict[str, None]):
    """The links in one server's results, a set in the order in which they were last seen."""

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
                self.pop(block.uri, None)
                self[block.uri] = None
        for uri in list(self)[: max(0, len(self) - MAX_URIS)]:
            del self[uri]


_results: Final = msgspec.json.Decoder(_Result)
