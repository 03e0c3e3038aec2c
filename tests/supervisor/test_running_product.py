"""The product while it runs: what its hosts share, and how long."""

from pathlib import Path

from support.serves.products import product_of


def test_what_was_cut_for_a_client_goes_with_its_session(tmp_path: Path) -> None:
    """What a client was answered would stay in memory after it."""
    with product_of(tmp_path) as product:
        host = product.create_host()
        assert host.content.results is product.results
        for client in ("door/1", "door/2"):
            product.results.keep(client, client, b"whole", 0)
        host.content.on_ended("door/1")
        assert product.results.read("door/1", "door/1", 0) is None
        assert product.results.read("door/2", "door/2", 0) == b"whole"
        host.close()
