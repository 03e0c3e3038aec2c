"""Searching a workspace with ripgrep."""
