"""Serve many clients over streamable HTTP."""
