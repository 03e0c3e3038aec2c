"""Keep what files held before a tool changed them, and bring it back."""
