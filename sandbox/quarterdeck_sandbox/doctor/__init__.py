"""Find out what this machine can enforce, and attack it."""
