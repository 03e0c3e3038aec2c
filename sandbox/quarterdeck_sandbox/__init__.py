"""What confines and reaps a process that runs code we did not write."""
