"""The bridge: what a fleet's servers offer, as one source of tools, prompts and resources that clients can be shown."""
