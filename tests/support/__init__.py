"""What tests and benches share, a folder per concern; `waiting` is the one way to wait."""
