"""What bubblewrap, Landlock and seccomp are told to enforce. Pure."""
