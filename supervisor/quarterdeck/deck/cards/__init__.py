"""The seven app cards, each a file: tools that the kernel does not have."""
