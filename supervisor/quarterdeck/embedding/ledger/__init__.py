"""The ledger of values that embedding programs use; `quarterdeck.ledger` names what is public."""
