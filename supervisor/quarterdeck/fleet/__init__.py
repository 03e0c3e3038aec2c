"""All endpoints of one configuration, and the supervision that starts again what dies."""
