"""Calls and events as records for other systems: JSON or CEF, in a file or over syslog."""
