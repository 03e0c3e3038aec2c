"""What tests and benches share: a raw client, the stock client's raw view, the pretend servers, leftover checks."""
