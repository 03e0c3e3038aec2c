"""Secrets: planted in configurations, and kept in keyrings."""
