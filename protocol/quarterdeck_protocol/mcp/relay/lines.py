"""The bytes of our own JSON-RPC lines, each with its end.  Pure.

Params are spliced in as they are.  A raw line break in them can only stand between values, as white space.
"""

from typing import Final

import msgspec

_SPACES: Final = bytes.maketrans(b"\r\n", b"  ")


def request_line(wire_id: int, method: str, params: bytes, meta: bytes) -> bytes:
    """A request; `params` is one JSON object without `_meta`, `meta` the members of that; each empty for none."""
    head = b'{"jsonrpc":"2.0","id":%d,"method":%s' % (wire_id, _encode(method))
    return _one_line(head, params, meta)


def notification_line(method: str, params: bytes, meta: bytes) -> bytes:
    """A notification; see `request_line`."""
    return _one_line(b'{"jsonrpc":"2.0","method":%s' % _encode(method), params, meta)


def result_line(server_id: int | str | None, result: bytes) -> bytes:
    """The answer to a request of the server's: one JSON object."""
    return _unbroken(b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (_encode(server_id), result))


def error_line(server_id: int | str | None, code: int, message: str, data: bytes = b"") -> bytes:
    """The refusal of a request of the server's; `data` is any JSON, empty for none."""
    error: dict[str, object] = {"code": code, "message": message}
    if data:
        error["data"] = msgspec.Raw(data)
    return _unbroken(b'{"jsonrpc":"2.0","id":%s,"error":%s}' % (_encode(server_id), _encode(error)))


def _one_line(head: bytes, params: bytes, meta: bytes) -> bytes:
    if not meta:
        return _unbroken(b'%s,"params":%s}' % (head, params) if params else head + b"}")
    inner = params.rstrip()[:-1].rstrip()
    comma = b"{" if not inner else b"" if inner.endswith(b"{") else b","
    return _unbroken(b'%s,"params":%s%s"_meta":{%s}}}' % (head, inner, comma, meta))


def _unbroken(line: bytes) -> bytes:
    if b"\n" in line or b"\r" in line:
        line = line.translate(_SPACES)
    return line + b"\n"


_encode: Final = msgspec.json.Encoder().encode
