"""The bytes of our own JSON-RPC lines, each with its end.  Pure.

Params are spliced in as they are.  A raw line break in them can only stand between values, as white space.
"""

from typing import Final

import msgspec

from quarterdeck_protocol.mcp.jsonrpc import CR, LF

_SPACES: Final = bytes.maketrans(b"\r\n", b"  ")


def request_line(wire_id: int, method: str, params: bytes, meta: bytes) -> bytes:
    """A request; `params` is one JSON object without `_meta`, `meta` the members of that; each empty for none."""
    return _line(b'{"jsonrpc":"2.0","id":%d,"method":%s' % (wire_id, _encode(method)), params, meta)


def call_line(wire_id: int, tool: str, arguments: bytes, meta: bytes) -> bytes:
    """The request `tools/call`; `arguments` is one JSON object, `meta` as for `request_line`.  Copies nothing twice."""
    if LF in arguments or CR in arguments:
        arguments = arguments.translate(_SPACES)
    return b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%s,"arguments":%s%s' % (
        wire_id,
        _encode(tool),
        arguments,
        b',"_meta":{%s}}}\n' % meta if meta else b"}}\n",
    )


def notification_line(method: str, params: bytes, meta: bytes) -> bytes:
    """A notification; see `request_line`."""
    return _line(b'{"jsonrpc":"2.0","method":%s' % _encode(method), params, meta)


def result_line(server_id: int | str, result: bytes) -> bytes:
    """The answer to a request of the server's: one JSON object."""
    return b'{"jsonrpc":"2.0","id":%s,"result":%s}\n' % (_encode(server_id), _unbroken(result))


def error_line(server_id: int | str, code: int, message: str, data: bytes = b"") -> bytes:
    """The refusal of a request of the server's; `data` is any JSON, empty for none."""
    error: dict[str, object] = {"code": code, "message": message}
    if data:
        error["data"] = msgspec.Raw(_unbroken(data))
    return b'{"jsonrpc":"2.0","id":%s,"error":%s}\n' % (_encode(server_id), _encode(error))


def members_of(meta: bytes) -> bytes:
    """What stands between the braces of a JSON object."""
    return _unbroken(meta).strip()[1:-1].strip()


def _line(head: bytes, params: bytes, meta: bytes) -> bytes:
    if not params:
        return b'%s,"params":{"_meta":{%s}}}\n' % (head, meta) if meta else head + b"}\n"
    params = _unbroken(params)
    if not meta:
        return b'%s,"params":%s}\n' % (head, params)
    open_object = params.rstrip()[:-1].rstrip()
    comma = b"" if open_object.endswith(b"{") else b","
    return b'%s,"params":%s%s"_meta":{%s}}}\n' % (head, open_object, comma, meta)


def _unbroken(json: bytes) -> bytes:
    return json.translate(_SPACES) if LF in json or CR in json else json


_encode: Final = msgspec.json.Encoder().encode
