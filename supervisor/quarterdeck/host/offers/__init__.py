"""What clients are shown of tools, prompts and resources, and how they are told that it changed."""
