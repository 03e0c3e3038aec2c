"""What a user wrote about servers, turned into values, and the places where we write.

Nothing here starts a process, logs, or prints: what a loader has to say is in the value that it returns.
"""
