"""The server's side of MCP: one client's session in either era.  Sans-IO: bytes in, bytes out.

`session` is the front door.  The other side, towards servers, is `mcp.client`.
"""
