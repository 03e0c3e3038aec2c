"""What the two web tools are made of: which addresses may be reached, one guarded GET, pages as text, and search."""
