"""The ledger on disk.  Blocking."""
