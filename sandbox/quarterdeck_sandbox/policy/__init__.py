"""From a policy to what is enforced, as values: the tier, its promises, the view, what was observed, limits. Pure."""
