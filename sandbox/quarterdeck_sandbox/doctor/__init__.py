"""Find out what this machine can enforce, attack it, and say what to do about each gap."""
