"""What passes between clients and one server: its lists, their requests, what it says and what it asks back."""
