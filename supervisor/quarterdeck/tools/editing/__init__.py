"""Replace a part of a text: find it, fit in the new one, keep encoding and line ends.  Pure."""
