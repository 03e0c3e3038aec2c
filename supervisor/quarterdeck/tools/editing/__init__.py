"""Replacing a part of a text: finding it, fitting in the new one, keeping encoding and line ends.  Pure."""
