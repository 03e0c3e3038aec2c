"""Commands that change configuration."""
