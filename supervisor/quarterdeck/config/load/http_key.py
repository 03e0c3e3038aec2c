"""The key `http` of the user's own file: where the daemon listens.

    {"http": true}                                     at the usual address
    {"http": "127.0.0.1:9000"}                         at this one
    {"http": {"address": "10.0.0.5:8808", "allow_remote": true, "allow_hosts": ["deck.example"]}}

Pure.
"""

from typing import Final

from quarterdeck.common.http_wish import HttpWish
from quarterdeck_protocol.names import did_you_mean

from .document import HTTP_KEY, JsonObject
from .problems import RowError, at, describe

MEMBERS: Final = ("address", "allow_remote", "allow_hosts")


def read_http(document: JsonObject) -> HttpWish | None:
    """What a file says of HTTP; None when it says nothing, or that nothing listens.

    Raises:
        RowError: it says something else.
    """
    value = document.get(HTTP_KEY)
    match value:
        case None | False:
            return None
        case True:
            return HttpWish()
        case str():
            return HttpWish(_address(value, HTTP_KEY))
        case JsonObject():
            return _of_object(value)
    raise RowError(HTTP_KEY, f"expected true, an address, or an object, got {describe(value)}")


def _of_object(value: JsonObject) -> HttpWish:
    for key in value:
        if key not in MEMBERS:
            raise RowError(at(HTTP_KEY, key), f"means nothing{did_you_mean(key, MEMBERS)}")
    address, hosts = value.get("address", ""), value.get("allow_hosts", [])
    if not isinstance(address, str):
        raise RowError(at(HTTP_KEY, "address"), f"expected a string, got {describe(address)}")
    if not isinstance(remote := value.get("allow_remote", False), bool):
        raise RowError(at(HTTP_KEY, "allow_remote"), f"expected true or false, got {describe(remote)}")
    if not isinstance(hosts, list) or not all(isinstance(each, str) for each in hosts):
        raise RowError(at(HTTP_KEY, "allow_hosts"), "expected an array of names")
    return HttpWish(_address(address, at(HTTP_KEY, "address")), remote, tuple(map(str, hosts)))


def _address(text: str, place: str) -> str:
    if text.rpartition(":")[2] == "0":
        raise RowError(place, "the port 0 is another one at each start: name one that clients can be told")
    return text
