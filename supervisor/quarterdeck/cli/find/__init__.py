"""Commands that find servers and keep them up to date: `search`, `add`, `remove`, `outdated`, `upgrade`, `seals`."""
