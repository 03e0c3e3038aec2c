"""What one client may list and call, and how its calls are answered."""
