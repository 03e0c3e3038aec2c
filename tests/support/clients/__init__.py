"""Clients of what is served: raw ones, stock ones, and their configuration files."""
