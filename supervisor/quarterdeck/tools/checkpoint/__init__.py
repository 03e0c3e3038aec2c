"""Keep the content of files before a tool changes them, and restore it."""
