"""Allowances of clients that may use a part of what there is."""


class OnlyReads:
    """Of tools those that are called `read…` by themselves or behind their server's id."""

    words = "the group 'reads'"
    max_result_bytes = None

    def allows(self, name: str, _: str = "tools") -> bool:
        return name.rpartition("__")[2].startswith("read")

    def allows_some_of(self, _: str) -> bool:
        return True


class OnlyA:
    """A token that allows the server `a` alone."""

    words = "the token 'ci'"
    max_result_bytes = None

    def allows(self, name: str, listing: str = "tools") -> bool:
        """See `Allowance`."""
        return name.startswith("a__")

    def allows_some_of(self, server: str) -> bool:
        """See `Allowance`."""
        return server == "a"
