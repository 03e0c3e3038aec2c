"""Start a process, and what is left of it: commands, forks, pretend programs, leftovers."""
