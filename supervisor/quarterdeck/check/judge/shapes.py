"""Hold results against the protocol's own types, those of the SDK.  Pure."""

from collections.abc import Mapping

from quarterdeck.check.episode import Ending, Episode, Exchange
from quarterdeck.check.schemas import shown
from quarterdeck_protocol.mcp.client.eras import HANDSHAKE_REVISIONS, MODERN_REVISIONS
from quarterdeck_protocol.plain_words import plain_words


def shape_problem(exchange: Exchange, episode: Episode) -> str:
    """Return why a result is not what the protocol wants in the episode's revision; empty if it is."""
    from mcp_types import methods
    from pydantic import ValidationError

    known = (*HANDSHAKE_REVISIONS, *MODERN_REVISIONS)
    era = episode.era if episode.era in known else HANDSHAKE_REVISIONS[-1]
    result = exchange.result
    if not isinstance(result, Mapping):
        return "the result is no object"
    try:
        methods.validate_server_result(exchange.method, era, result)
    except KeyError:
        return ""
    except (ValidationError, RecursionError) as error:
        return shown(plain_words(error))
    return ""


def refusal_problem(exchange: Exchange, *codes: int) -> str:
    """Return why an answer is not a refusal with one of these codes; empty if it is."""
    wanted = " or ".join(map(str, codes))
    if exchange.error is not None:
        return "" if exchange.error_code in codes else f"the error's code is {exchange.error_code}, not {wanted}"
    return unanswered(exchange) or "it was answered with a result"


def unanswered(exchange: Exchange) -> str:
    """Return why there was no answer; empty if there was one."""
    if exchange.reply is not None:
        return ""
    if exchange.ending is Ending.LOST:
        return "the server ended" if not exchange.status else "the connection ended"
    if exchange.ending is Ending.REFUSED:
        return f"HTTP status {exchange.status} without a message"
    return f"no answer in {exchange.waited_s:.0f} s"


def error_words(exchange: Exchange) -> str:
    """Return an error as messages quote it."""
    error = exchange.error or {}
    return f"error {shown(str(error.get('code')))}: {shown(str(error.get('message')))}"
