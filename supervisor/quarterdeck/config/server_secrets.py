"""The secrets that a server is given, so that no message, log or record repeats them.  Pure."""

from collections.abc import Mapping

from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig
from quarterdeck_protocol.secrets import secret_values, secrets_in, secrets_in_args


def secrets_of(config: ServerConfig, environment: Mapping[str, str] | None = None) -> frozenset[str]:
    """The secrets in a server's variables, headers, arguments and URL.

    Args:
        config: the server, variables resolved.
        environment: the whole environment of its process, what it inherits included; its `env` alone when absent.
    """
    if isinstance(config, StdioServerConfig):
        given = {**(environment or {}), **config.env}
        return frozenset({*secret_values(given), *secrets_in_args((config.command, *config.args))})
    return frozenset({*secret_values(config.headers), *secrets_in(config.url)})
