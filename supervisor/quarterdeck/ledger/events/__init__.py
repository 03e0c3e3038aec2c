"""The ledger as values: its events, their chain and what they amount to.  Pure."""
