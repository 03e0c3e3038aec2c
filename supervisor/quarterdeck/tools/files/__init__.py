"""Files, by what was really opened: the roots of a session, the local file seam, reading and telling kinds apart."""
