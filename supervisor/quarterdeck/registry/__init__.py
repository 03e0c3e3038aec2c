"""Find servers: what an MCP registry says of them, as rows of a configuration, and the versions of their packages."""
