"""Serve one client over a pair of descriptors."""
