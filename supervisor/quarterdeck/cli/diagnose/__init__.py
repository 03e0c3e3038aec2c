"""Commands that explain what happened."""
