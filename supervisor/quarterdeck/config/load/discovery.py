"""The servers of the files that belong to a directory, as an embedding program asks for them.

Of the places in `candidates` these are the first five; who calls this vouches for all of them, the project's file too.
A file that is absent or broken is passed over: one bad file must not sink a session.  What was passed over is logged,
and nothing is printed: stdout may be a protocol's.
"""

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from quarterdeck_protocol.configs import ServerConfig

from .candidates import mcp_config_paths
from .file import ConfigFileError, LoadedConfig, load_config_file

_logger = logging.getLogger(__name__)


def load_mcp_config(path_or_cwd: str | Path, environ: Mapping[str, str] | None = None) -> list[ServerConfig]:
    """The servers of one file, or of the five that belong to a directory.

    Args:
        path_or_cwd: an existing file, which alone is read; anything else is taken for the working directory.
        environ: where `HOME`, `XDG_CONFIG_HOME` and the files' variables come from; our own environment by default.

    Raises:
        ConfigFileError: the file that was named cannot be used.
    """
    environ = os.environ if environ is None else environ
    named = Path(path_or_cwd)
    if named.is_file():
        loaded = load_config_file(named, environ)
        _tell(named, loaded)
        return list(loaded.servers)
    servers: dict[str, ServerConfig] = {}
    for path in mcp_config_paths(named, environ):
        if not path.is_file():
            continue
        try:
            loaded = load_config_file(path, environ, workspace=named.absolute())
        except ConfigFileError as error:
            _logger.warning("skipped: %s", error)
            continue
        _tell(path, loaded)
        for config in loaded.servers:
            if servers.setdefault(config.id, config) is not config:
                _logger.warning("%s: %r is ignored: an earlier file defines it", path, config.id)
    return list(servers.values())


def _tell(path: Path, loaded: LoadedConfig) -> None:
    for warning in loaded.warnings:
        _logger.warning("%s: %s", path, warning)
    for row in loaded.broken:
        _logger.warning("skipped: %s", row.message)
