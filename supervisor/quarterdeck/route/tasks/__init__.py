"""Tasks of servers as clients see them."""
