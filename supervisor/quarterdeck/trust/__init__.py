"""What may be shown and called of a server: what was approved, what changed since, what its words try to do.

Pure judges in the middle (`items`, `judging`, `changes`, `renames`, `scan`), thin edges around them.
"""
