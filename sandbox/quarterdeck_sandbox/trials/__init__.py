"""Tries of what a machine can do, one module a mechanism: each does the thing, once, and tells what came of it.

Nothing is left behind (but that a control group delegated to us hands its controllers on), and nothing is raised for
what a machine lacks; whatever is started has a deadline and an empty environment.
"""
