"""What may be shown and called of a server: what was approved, what changed since, what its words try to do.

`judge`, `diff`, `scan` and `lock` are pure; the modules beside them look at files, and watch the fleet.
"""
