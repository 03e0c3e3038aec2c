"""Seals: packages that runners ask for, installed once as read-only trees that are known by their hash."""
