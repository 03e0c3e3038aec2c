"""A client that is shown two tools in place of all: one that finds tools, and one that calls what was found."""
