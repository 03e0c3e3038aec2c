"""How tools are named and shown to clients."""
