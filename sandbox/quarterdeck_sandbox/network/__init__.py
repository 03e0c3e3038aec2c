"""The network of a sandbox: its namespace, the relay to listed hosts, the way to the internet."""
