"""Native tools: how one is defined, in which context it runs, and which of them the deck of a session has."""
