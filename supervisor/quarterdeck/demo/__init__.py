"""The demonstration: the main job on real processes, and three small servers that misbehave on demand."""
