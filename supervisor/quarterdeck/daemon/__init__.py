"""The daemon: one supervisor for all clients of a user, and the doors through which they come."""
