"""Approvals over a fleet in memory."""
