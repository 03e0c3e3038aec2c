"""Make the endpoint of a server: over a worker, or over a session of this process."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from quarterdeck.config.places.trusted_files import trusted_files
from quarterdeck_protocol.configs import ServerConfig

from .access import Access
from .endpoint import ServerEndpointImpl
from .worker_session import WorkerSession

if TYPE_CHECKING:
    from .embedded import SessionFactory


def create_server_endpoint(
    config: ServerConfig,
    session_factory: "SessionFactory | None" = None,
    *,
    allow_unsandboxed: bool = False,
    open_port: int | None = None,
    trusted: Callable[[], Iterable[str]] = trusted_files,
    secrets_of: Callable[[str], Iterable[str]] = lambda _: (),
    claim: Callable[[str], None] = lambda _: None,
    environ: Mapping[str, str] = os.environ,
    digest: str = "",
    access: Access | None = None,
) -> ServerEndpointImpl:
    """Return an idle endpoint for one server. Raise ValueError if `config` asks for what a session of this process
    cannot have.

    Args:
        config: which server.
        session_factory: makes a connected SDK session instead; it runs in this process, without isolation.
        allow_unsandboxed: start it even where nothing but limits can be enforced.
        open_port: of a deck on this machine's loopback that requires no token, see `Settings`.
        trusted: the user's own files, which it may not write; see `config.trusted_files`.
        secrets_of: by a server's id, values of its configuration that no message may repeat.
        claim: by a server's id, takes its directory before it starts; may raise `UnsafePathError`.
        environ: what its environment is made from.
        digest: names the configuration, which its directories belong to; that of the runtime by default.
        access: by our login at a remote server; None without one.
    """
    if session_factory is None:
        session = WorkerSession(
            config,
            allow_unsandboxed=allow_unsandboxed,
            open_port=open_port,
            trusted=trusted,
            secrets=secrets_of(config.id),
            claim=claim,
            environ=environ,
            digest=digest,
            access=access,
        )
        return ServerEndpointImpl(config, session)
    from .embedded import EmbeddedSession

    return ServerEndpointImpl(config, EmbeddedSession(config, session_factory))
