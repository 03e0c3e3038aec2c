"""Confinements, attacks on them, and what this machine can enforce."""
