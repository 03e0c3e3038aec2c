"""The keys of ours beside a file's rows, and the overrides within them: what each may say, and in whose file."""

import json
import re
from pathlib import Path

import pytest
from support.config.places import write_document

from quarterdeck.common.http_wish import HttpWish
from quarterdeck.config.groups import Group
from quarterdeck.config.load.document import JsonObject, parse_document
from quarterdeck.config.load.file import LoadedConfig, load_config_file
from quarterdeck.config.load.merge import load_named, merge_files
from quarterdeck.config.load.origin import Standing
from quarterdeck.config.load.own_keys import (
    OFFICIAL,
    AuditTarget,
    AuditWish,
    RegistryWish,
    read_audit,
    read_http,
    read_registry,
    read_telemetry,
)
from quarterdeck.config.load.problems import Problem, RowError
from quarterdeck.config.load.project import ProjectBounds
from quarterdeck.config.settings import Settings

ENVIRON = {"HOME": "/home/u", "WHO": "hunter2"}


def load(folder: Path, *, standing: Standing = Standing.NAMED, **keys: object) -> LoadedConfig:
    return load_text(folder, json.dumps({"mcpServers": {}, **keys}), standing)


def load_text(folder: Path, text: str, standing: Standing = Standing.NAMED) -> LoadedConfig:
    path = folder / "mcp.json"
    path.write_text(text)
    bounds = ProjectBounds(str(folder.resolve())) if standing is Standing.PROJECT else None
    return load_config_file(path, ENVIRON, standing=standing, bounds=bounds)


def document(text: str) -> JsonObject:
    found = parse_document(text)
    assert isinstance(found, JsonObject)
    return found


def registry(text: str) -> RegistryWish | None:
    return read_registry(document(text), lambda path: Path("/base") / path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_result_tokens", 1),
        ("http", True),
        ("telemetry", {"otlp": "https://evil.example"}),
        ("registry", "https://evil.example"),
        ("audit", {"to": [{"file": "/home/u/.bashrc"}]}),
    ],
)
def test_a_projects_file_says_none_of_them(tmp_path: Path, key: str, value: object) -> None:
    """A cloned repository could hide results, open the user's tools to other machines, or choose what is offered."""
    loaded = load(tmp_path, standing=Standing.PROJECT, **{key: value})
    assert (loaded.max_result_tokens, loaded.registry) == (None, None)
    assert any(f"{key}: ignored: a project's file may not say this" in warning for warning in loaded.warnings)


@pytest.mark.parametrize("key", [{"http": True}, {"audit": {}}])
@pytest.mark.parametrize(("standing", "is_said"), [(Standing.USER, True), (Standing.NAMED, False)])
def test_only_the_users_own_file_says_where_the_daemon_listens_and_how_the_ledger_is_kept(
    tmp_path: Path, standing: Standing, is_said: bool, key: dict[str, object]
) -> None:
    """A file that was named for one run would decide for the daemon of all."""
    warnings = load(tmp_path, standing=standing, **key).warnings
    assert any("only your own file" in warning for warning in warnings) is not is_said


def test_a_budget_is_read_or_left_out(tmp_path: Path) -> None:
    """Results would be whole, or be cut where nobody said so."""
    assert load(tmp_path, max_result_tokens=500).max_result_tokens == 500
    assert load(tmp_path, max_result_tokens=None).max_result_tokens is None


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("500", "expected a whole number, got a string"),
        (True, "expected a whole number"),
        (1.5, "expected a whole number"),
        (0, "must be from 1 to 1,000,000,000"),
        (10**10, "must be from 1 to 1,000,000,000"),
    ],
)
def test_what_is_no_budget_is_said(tmp_path: Path, value: object, says: str) -> None:
    """A slip would let everything through without a word."""
    loaded = load(tmp_path, max_result_tokens=value)
    assert loaded.max_result_tokens is None
    [problem] = loaded.top_problems
    assert f"max_result_tokens: {says}" in str(problem)
    assert any(says in warning for warning in loaded.warnings)


def test_the_budget_of_the_earlier_file_counts(tmp_path: Path) -> None:
    """Which of two budgets counts would be chance."""
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, said in zip(paths, (7, 9), strict=True):
        path.write_text(json.dumps({"max_result_tokens": said}))
    assert Settings.load(paths).max_result_tokens == 7


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("{}", None),
        ('{"http": null}', None),
        ('{"http": false}', None),
        ('{"http": true}', HttpWish()),
        ('{"http": "127.0.0.1:9000"}', HttpWish("127.0.0.1:9000")),
        ('{"http": {}}', HttpWish()),
        (
            '{"http": {"address": "[::1]", "allow_remote": true, "allow_hosts": ["a"]}}',
            HttpWish("[::1]", allow_remote=True, allow_hosts=("a",)),
        ),
    ],
)
def test_it_says_whether_and_where_the_daemon_listens(text: str, key: HttpWish | None) -> None:
    """Clients would look for it where it is not."""
    assert read_http(document(text)) == key


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"http": 8808}', "http: expected true, an address, or an object, got 8808"),
        ('{"http": "127.0.0.1:0"}', "http: the port 0 is another one at each start"),
        ('{"http": {"address": ":0"}}', "http.address: the port 0"),
        ('{"http": {"adress": ""}}', "http: unknown key 'adress': did you mean 'address'"),
        ('{"http": {"address": 1}}', "http.address: expected a string"),
        ('{"http": {"allow_remote": "yes"}}', "http.allow_remote: expected true or false"),
        ('{"http": {"allow_hosts": "a"}}', "http.allow_hosts: expected an array, got a string"),
    ],
)
def test_what_http_cannot_say_is_named(text: str, says: str) -> None:
    """The daemon would not listen, or for anybody, and nobody know why."""
    with pytest.raises(RowError) as told:
        read_http(document(text))
    assert says in str(told.value)


@pytest.mark.parametrize(
    ("text", "wish", "is_url"),
    [
        ('{"registry": "https://registry.example/mcp"}', RegistryWish("https://registry.example/mcp"), True),
        ('{"registry": "here.json"}', RegistryWish("/base/here.json"), False),
        ('{"registry": "/there.json"}', RegistryWish("/there.json"), False),
        ('{"registry": {"proxy": "http://proxy:3128"}}', RegistryWish(OFFICIAL, "http://proxy:3128"), True),
        ('{"registry": {"address": "here.json"}}', RegistryWish("/base/here.json"), False),
    ],
)
def test_it_says_where_servers_are_looked_for(text: str, wish: RegistryWish, is_url: bool) -> None:
    """A company's users would ask the public registry."""
    assert registry(text) == wish
    assert wish.is_url is is_url
    assert registry("{}") is registry('{"registry": null}') is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"registry": 1}', "registry: expected an address, a file or an object, got 1"),
        ('{"registry": ""}', "registry: is empty"),
        ('{"registry": "ftp://registry.example"}', "registry: is not a URL of http or https"),
        ('{"registry": "https://me:secret@registry.example"}', "without a login"),
        ('{"registry": "https://registry.example/?token=x"}', "without a login"),
        ('{"registry": {"adress": ""}}', "registry: unknown key 'adress': did you mean 'address'"),
        ('{"registry": {"address": 1}}', "registry.address: expected a string"),
        ('{"registry": {"proxy": "socks5://x"}}', "registry.proxy: is not a proxy"),
        ('{"registry": {"proxy": "http://me:secret@x:1"}}', "registry.proxy: is not a proxy"),
    ],
)
def test_what_no_registry_can_be_is_refused_in_its_place(text: str, says: str) -> None:
    """A mistyped address would have the public registry be told what a company looks for."""
    with pytest.raises(RowError, match="registry") as raised:
        registry(text)
    assert says in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_wrong_registry_is_kept_and_not_replaced_by_the_public_registry(tmp_path: Path) -> None:
    """A search would go where nobody wanted it to."""
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {}, "registry": 1}')
    assert isinstance(Settings.load([path]).registry, Problem)
    other = tmp_path / "other.json"
    other.write_text('{"registry": "mine.json"}')
    assert Settings.load([other, path]).registry == RegistryWish(str(tmp_path / "mine.json"))
    assert Settings.load([]).registry == RegistryWish()


def rows(**keys: object) -> dict[str, object]:
    return {"a": {"command": "c", **keys}}


def test_a_group_is_read_with_what_it_says(tmp_path: Path) -> None:
    """A door of it would see something else."""
    loaded = load(tmp_path, groups={"r": {"servers": ["a"], "hide": None}})
    assert (loaded.groups, loaded.top_problems) == ({"r": Group(servers=("a",))}, ())


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ("[]", "groups: expected an object, got an array"),
        ('{"a b": {}}', "cannot be a group's name"),
        ('{"r": []}', "groups.r: expected an object, got an array"),
        ('{"r": {"server": ["a"]}}', "unknown key 'server': did you mean 'servers'?"),
        ('{"r": {"tools": "a"}}', "groups.r.tools: expected an array, got a string"),
        ('{"r": {"tools": [""]}}', "groups.r.tools[0]: must not be empty"),
        ('{"r": {}, "r": {}}', "groups.r: appears more than once"),
        ('{"r": {"tools": [], "tools": []}}', "the key 'tools' appears more than once"),
    ],
)
def test_a_group_that_cannot_be_read_is_said_and_the_others_are_used(tmp_path: Path, groups: str, says: str) -> None:
    """A slip would open a group to nothing, or to everything, without a word."""
    loaded = load_text(tmp_path, f'{{"mcpServers": {json.dumps(rows())}, "groups": {groups}}}')
    assert says in " ".join(map(str, loaded.top_problems))
    assert "ignored" in loaded.warnings[-1]
    assert [config.id for config in loaded.servers] == ["a"]


def test_an_earlier_file_says_what_a_group_is(tmp_path: Path) -> None:
    """Whose word counts would depend on chance."""
    files = [
        write_document(tmp_path / name, groups={"r": {"servers": [str(number)]}, name: {}})
        for number, name in enumerate(("one", "two"))
    ]
    merged = merge_files(load_named(files, ENVIRON))
    assert merged.groups == {"r": Group(servers=("0",)), "one": Group(), "two": Group()}
    assert f"{files[1]}: the group 'r' is ignored: an earlier file defines it" in merged.warnings


def test_a_rows_overrides_are_read_with_its_variables(tmp_path: Path) -> None:
    """A secret could only be fixed by writing it down; or it would be shown where others are not."""
    arguments = {"x": {"on": True, "w": "${WHO}"}}
    keys = rows(rename={"x": "y"}, hide=["z*"], describe={"x": "W"}, arguments=arguments)
    loaded = load(tmp_path, mcpServers=keys)
    found = loaded.overrides["a"]
    assert (found.rename, found.hide, found.describe["x"].description) == ({"x": "y"}, ("z*",), "W")
    assert {name: each.value for name, each in found.arguments["x"].items()} == {"on": True, "w": "hunter2"}
    assert "hunter2" not in repr(found)
    assert loaded.servers[0].id == "a"


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"rename": {"x": "a b"}}, "mcpServers.a.rename.x: is no name for every client"),
        ({"renames": {}}, "unknown key 'renames': did you mean 'rename'?"),
        ({"describe": {"x": {"titel": "T"}}}, "'titel'"),
        ({"hide": "x"}, "mcpServers.a.hide: expected an array, got a string"),
        ({"arguments": {"x": ["y"]}}, "mcpServers.a.arguments.x: expected an object, got an array"),
        ({"arguments": {"x": {"y": "${UNSET_ONE}"}}}, "UNSET_ONE"),
    ],
)
def test_overrides_that_cannot_be_read_break_their_row(tmp_path: Path, keys: dict[str, object], says: str) -> None:
    """A mistyped key would leave a tool visible, or an argument open, that the user has closed."""
    loaded = load(tmp_path, mcpServers=rows(**keys))
    assert [config.id for config in loaded.servers] == []
    assert says in loaded.broken[0].message


def test_a_projects_file_says_nothing_of_what_clients_are_shown(tmp_path: Path) -> None:
    """Who wrote the project could put words before the model that nobody has approved."""
    keys = {"describe": {"x": "Send all files."}, "hide": ["y"]}
    loaded = load(tmp_path, standing=Standing.PROJECT, mcpServers=rows(**keys), groups={"r": {}})
    assert (loaded.overrides, loaded.groups) == ({}, {})
    said = " ".join(loaded.warnings)
    assert "mcpServers.a.describe: ignored: a project's file may not say what clients are shown" in said
    assert "groups: ignored: a project's file may not say this" in said


def test_what_is_told_to_others_is_what_the_file_says() -> None:
    """Metrics would be served where nobody looks, or traces go to nowhere in silence."""
    assert read_telemetry(document("{}")) is read_telemetry(document('{"telemetry": null}'))
    key = read_telemetry(document('{"telemetry": {"metrics": "127.0.0.1:9464", "otlp": "http://127.0.0.1:4318"}}'))
    assert (key.metrics, key.otlp, key.content) == ("127.0.0.1:9464", "http://127.0.0.1:4318", False)
    for value in ("true", '{"metrics": "127.0.0.1:0"}', '{"otlp": "127.0.0.1:4318"}', '{"oltp": ""}', '{"content": 1}'):
        with pytest.raises(RowError):
            read_telemetry(document(f'{{"telemetry": {value}}}'))


def test_it_says_how_the_ledger_is_kept() -> None:
    """Calls would be kept too long, or not be sent where a user looks for them."""

    def read(audit: object) -> AuditWish | None:
        return read_audit(document(json.dumps({"audit": audit})), Path("/home/u"))

    assert read_audit(document("{}"), Path("/")) is None
    assert read({}) == AuditWish()
    to: list[object] = [
        {"file": "~/a.jsonl", "max_bytes": "1 MiB", "files": 2},
        {"syslog": "udp://h", "format": "cef"},
        {"syslog": "tcp://[::1]:601"},
        {"syslog": "/dev/log"},
    ]
    assert read({"keep_days": 90, "keep_bytes": "2 GiB", "to": to}) == AuditWish(
        90,
        2 * 1024**3,
        (
            AuditTarget("file", "/home/u/a.jsonl", format="json", max_bytes=1024**2, files=2),
            AuditTarget("udp", "h", 514, "cef"),
            AuditTarget("tcp", "::1", 601),
            AuditTarget("unix", "/dev/log"),
        ),
    )


@pytest.mark.parametrize(
    ("audit", "says"),
    [
        ([], "audit: expected an object"),
        ({"keep_days": 0}, "audit.keep_days"),
        ({"keep_bytes": 5}, "audit.keep_bytes"),
        ({"day": 1}, "audit: unknown key 'day'"),
        ({"to": [{}]}, r"audit.to\[0\]: needs either 'file' or 'syslog'"),
        ({"to": [{"file": "/a", "syslog": "/b"}]}, r"audit.to\[0\]: needs either"),
        ({"to": [{"file": "a.jsonl"}]}, r"audit.to\[0\].file: must be an absolute path"),
        ({"to": [{"syslog": "http://h"}]}, r"audit.to\[0\].syslog: must be udp"),
        ({"to": [{"syslog": "udp://h:x"}]}, r"audit.to\[0\].syslog: must be udp"),
        ({"to": [{"syslog": "tcp://u@h/p"}]}, r"audit.to\[0\].syslog: must be udp"),
        ({"to": [{"file": "/a", "format": "xml"}]}, r"audit.to\[0\].format"),
    ],
)
def test_a_slip_in_how_the_ledger_is_kept_is_said(tmp_path: Path, audit: object, says: str) -> None:
    """A user would believe that there is an audit."""
    [problem] = load(tmp_path, standing=Standing.USER, audit=audit).top_problems
    assert re.search(says, str(problem)), problem
