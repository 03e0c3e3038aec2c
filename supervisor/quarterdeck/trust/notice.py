"""What clients are told of what is held.  Pure."""

from collections.abc import Mapping, Sequence

MAX_SERVERS = 8
"""Named one by one; a model's context is dear."""


def notice(held: Mapping[str, int], launches: Sequence[str]) -> str:
    """How many tools are held, of which servers, and which servers are not started; empty when all is well.

    Args:
        held: how many tools of each server are held.
        launches: the servers whose launch is.
    """
    held = {server: count for server, count in held.items() if count}
    parts = []
    if total := sum(held.values()):
        listed = _listed([f"{server}: {count}" for server, count in held.items()])
        what, them = ("tool is", "it") if total == 1 else ("tools are", "them")
        parts.append(f"{total} {what} held until a person approves {them} ({listed})")
    if launches:
        count = len(launches)
        parts.append(
            f"{count} {'server is' if count == 1 else 'servers are'} not started until a person approves how "
            f"({_listed(launches)})"
        )
    return f"{'; '.join(parts)}. The user can look with `quarterdeck trust list`." if parts else ""


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MAX_SERVERS])
    return f"{shown} and {len(names) - MAX_SERVERS} more" if len(names) > MAX_SERVERS else shown
