"""Load one configuration file.

A row that cannot be used is kept with its reasons; only a file of which nothing can be used is an error.  Finding files
is not decided here; what an untrusted project's file may not say is.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from quarterdeck.common.text_file import TextFileError, read_text
from quarterdeck.config.groups import Group
from quarterdeck.config.load.document import (
    AUDIT_KEY,
    BUDGET_KEY,
    GROUPS_KEY,
    HTTP_KEY,
    NATIVE_KEY,
    REGISTRY_KEY,
    START_KEY,
    TELEMETRY_KEY,
    TRUST_KEY,
    DocumentError,
    JsonObject,
    WrittenRow,
    claimed_id,
    describe_unknown_keys,
    name_of,
    parse_document,
    read_allowed_env,
    read_start,
    read_trust,
    rows_of,
)
from quarterdeck.config.load.jsonc import to_plain
from quarterdeck.config.load.origin import ClientForm, Origin, Standing, home_of, mcp_config_paths
from quarterdeck.config.load.own_keys import (
    RegistryWish,
    examine_groups,
    read_audit,
    read_budget,
    read_http,
    read_registry,
    read_telemetry,
)
from quarterdeck.config.load.problems import Problem, Problems, RowError, at
from quarterdeck.config.load.project import ALLOW_KEY, ProjectBounds, excesses, project_root, strictest
from quarterdeck.config.load.row import BuiltRow, examine_row, is_disabled
from quarterdeck.config.load.variables import Variables
from quarterdeck.config.native_tools import NativeSettings, examine_native
from quarterdeck.config.overrides import OVERRIDE_KEYS, ServerOverrides
from quarterdeck.config.places.paths import runtime_dir, state_dir
from quarterdeck.config.secrets.store import SecretStore
from quarterdeck_protocol.configs import ServerConfig, ServerScope, StartMode, TrustMode
from quarterdeck_protocol.faults import REMEDIES
from quarterdeck_protocol.names import to_server_id

UNNAMED: Final = "unnamed"
"""The id under which a row without one is judged."""

_OWN_FILE_KEYS: Final = {
    HTTP_KEY: "where the daemon listens",
    TELEMETRY_KEY: "what is told to others",
    AUDIT_KEY: "how the ledger is kept",
}
"""What each key decides for all decks of a user."""

MAX_CONFIG_BYTES: Final = 4 * 1024 * 1024
"""Some clients keep their whole state in the file that names servers; those reach a megabyte."""


class ConfigFileError(Exception):
    """Nothing of the file `path` can be used; `message` is one line."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


@dataclass(frozen=True, slots=True)
class BrokenRow:
    """A server that cannot be started as it is configured.

    A row without an id has its place in the file for one.  `message` and `code` are those of the first of `problems`;
    `is_required` is what it says under `required`.
    """

    id: str
    message: str
    code: str
    problems: tuple[Problem, ...] = field(default=(), compare=False, repr=False)
    is_required: bool = False

    @property
    def remedy(self) -> str:
        """An action for the user."""
        return REMEDIES[self.code]


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """The content of a file: servers and broken rows, each in its order, and a warning for each thing set aside.

    Attributes:
        native: its settings of native tools; None without any that can be used.
        native_row: these as they are written, variables unexpanded.
        trust, start: its defaults for rows; None without one.
        registry: where servers are looked for, or what is wrong with that; None if it does not say.
        top_problems: what is wrong with keys outside the rows.
        kept: broken rows that were good before; `servers` has their earlier form, see `merge.keep_good`.
        origins: by the id of a server or a broken row.
        claimed: every id that a row takes, or would take if it were right or switched on.
        secrets: values of variables, of secret files and from the keyring, that must not be shown.
        files: the files that its rows take values from, whether they exist or not.
    """

    servers: tuple[ServerConfig, ...] = ()
    broken: tuple[BrokenRow, ...] = ()
    kept: tuple[BrokenRow, ...] = ()
    warnings: tuple[str, ...] = ()
    native: NativeSettings | None = None
    native_problems: tuple[Problem, ...] = ()
    native_row: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)
    trust: TrustMode | None = None
    start: StartMode | None = None
    allowed_env: frozenset[str] = frozenset()
    registry: RegistryWish | Problem | None = None
    top_problems: tuple[Problem, ...] = ()
    origins: Mapping[str, Origin] = field(default_factory=dict, compare=False, repr=False)
    claimed: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    overrides: Mapping[str, ServerOverrides] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    max_result_tokens: int | None = None
    secrets: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    files: frozenset[Path] = field(default=frozenset(), compare=False, repr=False)
    names_workspace: bool = field(default=False, compare=False)

    @property
    def native_problem(self) -> str:
        """The first of `native_problems`, place and reason in one line; empty without any."""
        return str(self.native_problems[0]) if self.native_problems else ""


def load_config_file(
    path: Path,
    environ: Mapping[str, str],
    *,
    workspace: Path | None = None,
    standing: Standing = Standing.NAMED,
    bounds: ProjectBounds | None = None,
    keyring: Callable[[str], str] | None = None,
    text: str | None = None,
) -> LoadedConfig:
    """Load the file at `path`, which messages repeat as it is given.

    `workspace` is `${workspaceFolder}`, by default the file's directory, or the one above a hidden one (`.vscode`);
    unset if that is a home, a parent of one, or one of our directories.  `bounds` limit a project's file; `keyring`
    finds `${keyring:NAME}`, by default in the store of the state directory; `text` replaces the content of the file.

    Raises `ConfigFileError` if the file cannot be read or parsed, or has no key of ours.
    """
    try:
        base = path.absolute().parent
        base = base.resolve() if ".." in base.parts else base
        within = bounds.holds if bounds is not None and bounds.root is not None else None
        is_own_word = standing is not Standing.PROJECT
        if text is None:
            text = read_text(path, MAX_CONFIG_BYTES, is_own_word=is_own_word, within=within).text
        document = parse_document(to_plain(text))
        if not isinstance(document, JsonObject):
            raise DocumentError('expected an object, as in {"mcpServers": {…}}')
        variables = Variables(
            environ=environ,
            base=base,
            workspace=_project_at(workspace or (base.parent if base.name.startswith(".") else base), environ),
            home=home_of(environ),
            bounds=bounds,
            keyring=keyring or SecretStore().get,
        )
        return _Loading(path, document, variables, standing).load()
    except (OSError, TextFileError, DocumentError) as error:
        raise ConfigFileError(path, str(error)) from error


def _project_at(folder: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the folder if it may be a project's: no home, none of our directories, and no parent of one."""
    configuration = (path.parent for path in mcp_config_paths(folder, environ)[1:])
    ours = (state_dir(), runtime_dir(), *configuration)
    if project_root(folder, (home_of(environ), *ours)) is None:
        return None
    real = os.path.realpath(folder)
    return None if any(ProjectBounds(os.path.realpath(place)).holds(real) for place in ours) else folder


class _Loading:
    def __init__(self, path: Path, document: JsonObject, variables: Variables, standing: Standing) -> None:
        self._path = path
        self._document = document
        self._variables = variables
        self._standing = standing
        self._servers: list[ServerConfig] = []
        self._broken: list[BrokenRow] = []
        self._warnings: list[str] = []
        self._origins: dict[str, Origin] = {}
        self._claimed: set[str] = set()
        self._overrides: dict[str, ServerOverrides] = {}
        self._trust: TrustMode | None = None
        self._start: StartMode | None = None
        self._top = Problems()

    def load(self) -> LoadedConfig:
        if others := describe_unknown_keys(self._document):
            self._warn(others)
        self._trust = self._top.try_to(read_trust, self._document)
        self._start = self._top.try_to(read_start, self._document)
        allowed_env = self._top.try_to(read_allowed_env, self._document) or frozenset()
        self._top.try_to(read_http, self._document)
        self._top.try_to(read_telemetry, self._document)
        self._top.try_to(partial(read_audit, home=self._variables.home), self._document)
        max_result_tokens = self._top.try_to(read_budget, self._document)
        registry = self._read_registry()
        groups, problems = examine_groups(self._document)
        self._top += problems
        for row in rows_of(self._document):
            self._load_row(row)
        loaded = LoadedConfig(
            tuple(self._servers),
            tuple(self._broken),
            trust=self._trust,
            start=self._start,
            registry=registry,
            max_result_tokens=max_result_tokens,
            top_problems=tuple(self._top),
            origins=self._origins,
            claimed=frozenset(self._claimed),
            overrides=self._overrides,
        )
        loaded = self._withhold(loaded) if self._variables.bounds else self._complete(loaded, allowed_env, groups)
        return replace(
            loaded,
            warnings=tuple(self._warnings),
            secrets=frozenset(self._variables.secrets),
            files=frozenset(self._variables.files),
            names_workspace=bool(self._variables.places),
        )

    def _complete(self, loaded: LoadedConfig, allowed_env: frozenset[str], groups: Mapping[str, Group]) -> LoadedConfig:
        value = self._document.get(NATIVE_KEY)
        native, problems = examine_native(value, self._variables) if value is not None else (None, ())
        for problem in self._top:
            self._warn(f"ignored: {problem}")
        for key, what in _OWN_FILE_KEYS.items():
            if self._standing is not Standing.USER and self._document.get(key) is not None:
                self._warn(f"{key}: ignored: only your own file, which is found, says {what}")
        row = value if isinstance(value, JsonObject) else JsonObject()
        return replace(
            loaded, native=native, native_problems=problems, native_row=row, allowed_env=allowed_env, groups=groups
        )

    def _withhold(self, loaded: LoadedConfig) -> LoadedConfig:
        for key in (NATIVE_KEY, ALLOW_KEY, *_OWN_FILE_KEYS, REGISTRY_KEY, GROUPS_KEY, BUDGET_KEY):
            if self._document.get(key) is not None:
                self._warn(f"{key}: ignored: a project's file may not say this")
        if self._document.get(TRUST_KEY) not in (None, TrustMode.STRICT):
            self._warn(f"{TRUST_KEY}: ignored: a project's file may say only 'strict'")
        return replace(loaded, trust=None, registry=None, max_result_tokens=None, top_problems=())

    def _read_registry(self) -> RegistryWish | Problem | None:
        """Keep what is wrong: another registry than the intended one would learn what is looked for."""
        try:
            return read_registry(self._document, self._variables.locate)
        except RowError as error:
            self._top.append(error.problem)
            return error.problem

    def _load_row(self, row: WrittenRow) -> None:
        if (claimed := claimed_id(row)) is not None:
            self._claimed.add(claimed)
        label = row.location
        problems = Problems()
        built = None
        # Each row is masked and compared by the values that were put into it alone.
        is_of_client = isinstance(row.value, JsonObject) and row.value.get("scope") == ServerScope.CLIENT
        variables = replace(self._variables, taken={}, secrets=set(), left=set() if is_of_client else None)
        with problems.kept():
            if not isinstance(row.value, JsonObject):
                raise RowError(row.location, "expected an object")
            with problems.kept():
                if is_disabled(row.value, row.location):
                    return
            with problems.kept():
                label = self._claim_id(name_of(row), row)
            # Judged under any id, so that all that is wrong is found at once.
            server_id = label if label != row.location else UNNAMED
            built = self._build(row, row.value, server_id, problems, variables)
            if built is not None and built.config.scope is ServerScope.CLIENT and not is_of_client:
                place = at(row.location, "scope")
                raise RowError(place, "write 'client' itself, and no variable: it decides whose secrets are used")
        written = row.value if isinstance(row.value, JsonObject) else JsonObject()
        self._variables.secrets.update(variables.secrets)
        read = variables.taken, frozenset(variables.secrets)
        form = None
        if variables.left is not None and built is not None:
            names = tuple(sorted(variables.left))
            form = ClientForm(names, built.config, partial(self._for_client, row, label))
        self._origins[label] = Origin(self._path, row.location, self._standing, written, row.pointer, *read, form)
        if built is None or problems:
            first = problems[0]
            is_required = written.get("required") is True
            broken = BrokenRow(label, f"{self._path}: {first}", first.code, tuple(problems), is_required)
            self._broken.append(broken)
            return
        ignored = [key for key in built.ignored if key != "name" or row.name is not None or "id" in written]
        if ignored:
            self._warn(f"{row.location}: ignored: {', '.join(map(repr, ignored))}")
        self._servers.append(built.config)
        if built.overrides:
            self._overrides[label] = built.overrides

    def _build(
        self, row: WrittenRow, value: JsonObject, server_id: str, problems: Problems, variables: Variables
    ) -> BuiltRow | None:
        of_file = {TRUST_KEY: self._trust, START_KEY: self._start}
        defaults = {key: value for key, value in of_file.items() if value is not None}
        built, found = examine_row(value, server_id, row.location, variables, defaults)
        problems += found
        bounds = self._variables.bounds
        if bounds is None:
            problems += [problem for problem in self._top if problem.location == TRUST_KEY and not value.get(TRUST_KEY)]
            return built
        return self._bounded(built, bounds, row, problems) if built is not None else None

    def _for_client(
        self, row: WrittenRow, server_id: str, keyring: Callable[[str], str]
    ) -> tuple[ServerConfig, frozenset[str]]:
        """See `ClientForm.build`."""
        variables, problems = replace(self._variables, taken={}, secrets=set(), keyring=keyring), Problems()
        assert isinstance(row.value, JsonObject)
        built = self._build(row, row.value, server_id, problems, variables)
        if built is None or problems:
            raise RowError(problems[0].location, problems[0].reason, problems[0].code)
        return built.config, frozenset(variables.secrets)

    def _bounded(self, built: BuiltRow, bounds: ProjectBounds, row: WrittenRow, problems: Problems) -> BuiltRow:
        problems += excesses(built.config, bounds, row.location)
        written = built.config.trust
        trust = strictest(written, bounds)
        if isinstance(row.value, JsonObject) and row.value.get(TRUST_KEY) not in (None, trust):
            self._warn(f"{row.location}.{TRUST_KEY}: ignored: a project's file may say only 'strict'")
        for key in sorted(OVERRIDE_KEYS & built.overrides.model_fields_set):
            self._warn(f"{row.location}.{key}: ignored: a project's file may not say what clients are shown")
        return BuiltRow(built.config.model_copy(update={TRUST_KEY: trust}), built.ignored)

    def _claim_id(self, name: str, row: WrittenRow) -> str:
        if row.is_repeated:
            raise RowError(row.location, f"the key {name[:64]!r} appears more than once")
        server_id = to_server_id(name)
        if earlier := self._origins.get(server_id):
            raise RowError(row.location, f"its id would be {server_id!r}, as that of {earlier.location}: rename one")
        if server_id != name:
            self._warn(f"{row.location}: {name[:64]!r} is not a legal server id: the server is called {server_id!r}")
        return server_id

    def _warn(self, message: str) -> None:
        self._warnings.append(f"{self._path}: {message}")
