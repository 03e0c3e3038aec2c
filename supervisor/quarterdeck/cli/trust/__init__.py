"""Commands about what servers offer and who approved it: `trust`, `lock`, `ledger`."""
