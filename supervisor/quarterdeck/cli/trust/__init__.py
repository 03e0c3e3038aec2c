"""`quarterdeck trust` and `lock`."""
