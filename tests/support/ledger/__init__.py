"""Ledgers to try things on, and a story in them."""
