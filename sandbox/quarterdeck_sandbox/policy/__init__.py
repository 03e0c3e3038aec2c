"""From a policy to what is enforced: the choice of a tier, what it promises, what was observed.  Pure."""
