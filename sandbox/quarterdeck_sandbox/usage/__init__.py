"""Measure what process trees use, and hold them to the limits that no kernel holds for us."""
