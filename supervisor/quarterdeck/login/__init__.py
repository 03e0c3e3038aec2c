"""Logins at remote servers: OAuth 2.1 as MCP has it, from the server's refusal to the token that is renewed."""
