"""Secrets that a configuration names: the keyring, and what must not be shown."""
