"""The configuration files that commands read and write: those that are named or found, and the user's own."""

import os
from pathlib import Path

from quarterdeck.config.load.merge import FileFound, load_found, load_named
from quarterdeck.config.load.origin import mcp_config_paths

from .exits import UsageError


def files_of(config: list[Path] | None) -> tuple[FileFound, ...]:
    """Return the named files, or else every place that is searched."""
    if config:
        return load_named(config, os.environ)
    try:
        cwd = Path.cwd()
    except OSError as error:
        raise UsageError(
            f"the working directory cannot be used: {error.strerror}", "name a file with --config"
        ) from error
    return load_found(cwd, os.environ)


def user_file() -> Path:
    """Return the user's own file, which `serve` finds by itself."""
    return mcp_config_paths(Path.cwd(), os.environ)[1]
