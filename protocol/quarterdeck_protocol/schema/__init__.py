"""JSON Schemas of tools: canonical form, hash, and a form that every model provider takes.  Pure."""
