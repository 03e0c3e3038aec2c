"""`quarterdeck ledger`."""
