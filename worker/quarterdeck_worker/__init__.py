"""The isolated process that drives one MCP server, and the zygote that forks it."""
