"""Find out what a program needs to be executed in a sandbox."""
