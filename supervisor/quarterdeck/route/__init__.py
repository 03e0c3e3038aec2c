"""Which server or native tool a client's request is for, and its way there."""
