"""Whole products that serve: one for a module's tests, and a server before it that changes what it offers."""
