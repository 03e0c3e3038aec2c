"""Judge what a server offers by what was approved.  Pure."""
