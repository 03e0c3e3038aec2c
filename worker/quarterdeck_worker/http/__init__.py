"""A server behind a URL: HTTP (streamable, or the SSE transport of 2024-11-05) as the carrier of a connection."""
