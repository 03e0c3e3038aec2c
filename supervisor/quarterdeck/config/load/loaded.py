"""What loading a configuration file gives, and the error when it gives nothing.  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from quarterdeck.config.native_tools import NativeSettings
from quarterdeck_protocol.configs import ServerConfig, TrustMode
from quarterdeck_protocol.faults import REMEDIES

from .origin import Origin
from .problems import Problem


class ConfigFileError(Exception):
    """Nothing of a file can be used.

    Attributes:
        path: the file, as it was named.
        message: what is wrong with it, one line.
    """

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


@dataclass(frozen=True, slots=True)
class BrokenRow:
    """A server that cannot be started as it is configured.

    Attributes:
        id: the server's id; where the row has none of its own, its place in the file (which is no legal id).
        message: file, place and reason of the first thing that is wrong, one line.
        code: `config_invalid` or `unset_variable`.
        problems: all that is wrong with it.
    """

    id: str
    message: str
    code: str
    problems: tuple[Problem, ...] = field(default=(), compare=False, repr=False)

    @property
    def remedy(self) -> str:
        """What a person can do about it."""
        return REMEDIES[self.code]


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """What a file says: servers and broken rows, each in its order, and one line for each thing that was set aside.

    Attributes:
        native: what it says of native tools; None when it says nothing, or nothing that can be used.
        native_problems: all that is wrong with that.
        native_row: the same as it is written, variables unexpanded.
        trust: what it says for its rows; None when it says nothing.
        allowed_env: the variables that projects' files may use.
        top_problems: what is wrong with those two.
        origins: where each server and broken row is written, by id.
        claimed: every id that a row takes, would take if it were right, or would take if it were switched on.
        secrets: values of variables, of secret files and from the keyring, that must not be shown.
        files: what its rows take values from, whether it is there or not.
    """

    servers: tuple[ServerConfig, ...] = ()
    broken: tuple[BrokenRow, ...] = ()
    warnings: tuple[str, ...] = ()
    native: NativeSettings | None = None
    native_problems: tuple[Problem, ...] = ()
    native_row: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)
    trust: TrustMode | None = None
    allowed_env: frozenset[str] = frozenset()
    top_problems: tuple[Problem, ...] = ()
    origins: Mapping[str, Origin] = field(default_factory=dict, compare=False, repr=False)
    claimed: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    secrets: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    files: frozenset[Path] = field(default=frozenset(), compare=False, repr=False)

    @property
    def native_problem(self) -> str:
        """The first of `native_problems`, place and reason in one line; empty without any."""
        return str(self.native_problems[0]) if self.native_problems else ""
