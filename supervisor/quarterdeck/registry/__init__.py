"""Find servers: what an MCP registry says of them, as rows of a configuration, and the latest versions of packages."""
