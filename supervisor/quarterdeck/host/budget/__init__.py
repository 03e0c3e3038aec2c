"""Results above a client's budget: cut to it, and kept whole for that client."""
