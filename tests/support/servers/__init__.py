"""Servers to talk to: scripted, pretend, real and public ones, MCP and web."""
