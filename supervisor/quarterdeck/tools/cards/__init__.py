"""Tools that keep or hand on something for a session: checklists, a note, plans, work for others."""
