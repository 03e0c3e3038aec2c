"""The documentation's pages, and what their examples need."""
