"""The control socket of a running `serve`: what the other commands ask it, and how it answers."""
