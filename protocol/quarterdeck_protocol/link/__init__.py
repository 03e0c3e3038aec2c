"""The link between supervisor and worker: frames, their bytes, and the sans-IO session of each end.  Pure."""
