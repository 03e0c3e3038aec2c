"""The tasks of clients: calls that servers go on with after they have answered."""
