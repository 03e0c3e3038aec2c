"""Clients are where the table says, on each system."""

from quarterdeck.config.clients.known_clients import CLIENTS, System, find_client


def test_every_client_has_a_place_on_every_system() -> None:
    """A user of that system would be told that the client does not exist."""
    for client in CLIENTS:
        systems = {system for place in client.places if not place.is_spare for system in place.systems}
        assert systems == set(System), client.name


def test_every_place_can_be_expanded() -> None:
    """A mistyped row would be a file in the working directory."""
    for client in CLIENTS:
        for place in client.places:
            assert place.path.startswith(("~/", "$")), place
            assert place.path.count("*") <= 1
            assert not place.path.endswith("*")
        assert not any(name.startswith(("/", "~", "..")) for name in client.project_files)


def test_names_are_found_and_others_are_not() -> None:
    """A client would be taken for another."""
    assert [find_client(client.name) for client in CLIENTS] == list(CLIENTS)
    assert find_client("Cursor ") is None
