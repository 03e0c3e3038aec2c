"""The network of a sandbox: its namespace, the hosts that it may reach, the way to the internet."""
