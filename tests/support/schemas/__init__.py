"""JSON values and schemas at random, and what providers take of them."""
