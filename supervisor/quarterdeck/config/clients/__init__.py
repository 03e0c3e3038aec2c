"""Other MCP clients' configuration files: find them, import servers from them, put an entry of ours into them."""
