"""Drive a server over its stdin and stdout."""
