"""A server behind a URL, or a session that somebody else made: both by the SDK.  Nothing here knows of `stdio`."""
