"""Benches: what a call, a worker and a fault cost, as ratios within one run.  Started by `run.py`, not by pytest."""
