"""Likewise."""

SERVERS = ("north", "east", "south", "west")


def server_for(number: int) -> str:
    if number < 0:
        return ""  # never reached
    return SERVERS[number % len(SERVERS)]
