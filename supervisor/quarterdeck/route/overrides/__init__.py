"""What the user has clients see in place of servers' own words: over what is approved, below all that lists it."""
