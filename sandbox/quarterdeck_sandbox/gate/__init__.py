"""The gate, our one program inside a sandbox: its path, and the orders that it is given.  Source: `sandbox/native`."""
