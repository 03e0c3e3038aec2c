"""A fleet, its workers and their links, played by a test in memory."""
