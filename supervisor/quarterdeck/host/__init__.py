"""What MCP clients talk to: a tool box as an MCP server, over stdio, streamable HTTP or any pair of streams."""
