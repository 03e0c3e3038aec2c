"""What clients are told of what is held, and of what is still to come.  Pure."""

from collections.abc import Mapping, Sequence

MAX_SERVERS = 8
"""Named one by one; a model's context is dear."""


def notice(held: Mapping[str, int], launches: Sequence[str], starting: Sequence[str] = ()) -> str:
    """How many tools are held, of which servers, which servers are not started, and which are; empty when all is well.

    Args:
        held: how many tools of each server are held.
        launches: the servers whose launch is.
        starting: the servers whose tools are not known yet.
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
    told = [f"{'; '.join(parts)}. The user can look with `quarterdeck trust list`."] if parts else []
    if starting:
        whose = "its tools are" if len(starting) == 1 else "their tools are"
        told.append(f"Still starting: {_listed(starting)}; {whose} announced when they can be called.")
    return " ".join(told)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MAX_SERVERS])
    return f"{shown} and {len(names) - MAX_SERVERS} more" if len(names) > MAX_SERVERS else shown
