"""What a user wrote about servers, turned into values, and the places where we write.

Nothing here starts a process, logs, or prints: what a loader has to say is in the value that it returns.
Names resolve on first use, so that the command line starts without pydantic.
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from quarterdeck.config.load.file import BrokenRow, ConfigFileError, LoadedConfig, load_config_file
    from quarterdeck.config.load.variables import server_environment, withheld_variables
    from quarterdeck.config.places.paths import (
        ServerPaths,
        SessionPaths,
        UnsafePathError,
        WorkspacePaths,
        configuration_digest,
        make_private_dir,
        runtime_dir,
        server_paths,
        state_dir,
        workspace_paths,
    )
    from quarterdeck.config.places.runtime_directory import (
        RuntimeDirectory,
        Serving,
        find_serving,
        read_serving,
        sweep_stale,
    )

__all__ = [
    "BrokenRow",
    "ConfigFileError",
    "LoadedConfig",
    "RuntimeDirectory",
    "ServerPaths",
    "Serving",
    "SessionPaths",
    "UnsafePathError",
    "WorkspacePaths",
    "configuration_digest",
    "find_serving",
    "load_config_file",
    "make_private_dir",
    "read_serving",
    "runtime_dir",
    "server_environment",
    "server_paths",
    "state_dir",
    "sweep_stale",
    "withheld_variables",
    "workspace_paths",
]

_HOMES: Final = {
    "load.variables": ("server_environment", "withheld_variables"),
    "load.file": ("BrokenRow", "ConfigFileError", "LoadedConfig", "load_config_file"),
    "places.paths": (
        "ServerPaths",
        "SessionPaths",
        "UnsafePathError",
        "WorkspacePaths",
        "configuration_digest",
        "make_private_dir",
        "runtime_dir",
        "server_paths",
        "state_dir",
        "workspace_paths",
    ),
    "places.runtime_directory": ("RuntimeDirectory", "Serving", "find_serving", "read_serving", "sweep_stale"),
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
