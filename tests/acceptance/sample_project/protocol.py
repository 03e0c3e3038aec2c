"""A module of the user's, called as others are that pytest may have loaded already."""


def sum_of(content: object) -> int:
    if isinstance(content, dict):
        return int(content["sum"])
    return -1  # never reached
