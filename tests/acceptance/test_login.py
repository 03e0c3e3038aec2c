"""Logins at remote servers: in a browser, by what is pasted, by a machine's secret; renewed, refused, forgotten."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from supervisor.config.secrets.keyrings import install_keyring
from support.clients.raw_client import JsonObject, RawStdioClient
from support.config.places import write_config
from support.processes.commands import command, quarterdeck_forked, quarterdeck_json_forked, serving
from support.processes.http_servers import forked_http_server
from support.processes.running import DEADLINE_S
from support.servers.certificates import make_certificate
from support.waiting import eventually

from quarterdeck.config.places.paths import state_dir

BROWSER = """
import sys, urllib.request
urllib.request.urlopen(sys.argv[1], timeout=60).read()
"""
"""A person who agrees: it opens the page, and follows it to where it leads."""

MACHINE = {"client_id": "machine", "client_secret": "machine-s3cret"}

COMPLETE = "notifications/elicitation/complete"

TOOLS = ["far__echo", "far__add", "far__slow", "far__progress"]


@pytest.fixture(autouse=True)
def browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `webbrowser` opens; and no keyring of whoever runs the tests."""
    script = tmp_path / "browser.py"
    script.write_text(BROWSER)
    monkeypatch.setenv("BROWSER", f"{sys.executable} {script} %s")
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with forked_http_server(name="protected") as url:
        yield url


def asked_of(url: str) -> list[str]:
    with urllib.request.urlopen(f"{origin_of(url)}/tests/tokens", timeout=DEADLINE_S) as answer:
        return [each["grant_type"] for each in json.load(answer)["asked"]]


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def server_of(config: Path) -> Any:
    [found] = quarterdeck_json_forked("ps", "-c", str(config))["servers"]
    return found


def tools_of(client: RawStdioClient) -> list[str]:
    return [tool["name"] for tool in client.list_tools()]


def absence(config: Path) -> Any:
    """Why a server that is started for one command offers nothing."""
    shown = json.loads(quarterdeck_forked("tools", "-c", str(config), "--json").stdout)
    assert shown["tools"] == []
    [server] = shown["absent"]
    return server["fault"]


def test_a_login_in_the_browser_starts_the_server_at_once(url: str, tmp_path: Path) -> None:
    """Its tools work without a restart, stay when tokens are renewed, and no token lies about."""
    config = write_config(tmp_path / "mcp.json", far={"url": url})
    with serving(config, is_forked=True) as client:
        client.initialize()
        assert tools_of(client) == []
        before = server_of(config)
        assert (before["phase"], before["fault"]["code"]) == ("faulted", "auth_needed")
        assert "quarterdeck login far" in before["fault"]["remedy"]
        early = client.call("far__echo", text="too early")
        assert early["isError"]
        assert "quarterdeck login far" in early["content"][0]["text"]

        refused = quarterdeck_forked("login", "-c", str(config), "far", "--yes")
        assert refused.returncode == 2
        assert "no system keyring is available" in refused.stderr
        done = quarterdeck_forked("login", "-c", str(config), "far", "--yes", "--file")
        assert done.returncode == 0, done.stderr
        for told in (f"issuer    {origin_of(url)}", f"resource  {url}", "scopes    read"):
            assert told in done.stderr
        eventually(lambda: server_of(config)["phase"] == "ready", DEADLINE_S)
        eventually(lambda: tools_of(client) == TOOLS, DEADLINE_S)
        assert client.call("far__echo", text="in")["content"][0]["text"] == "in"

        grants = asked_of(url)
        post(url, "revoke")
        assert client.call("far__echo", text="renewed")["content"][0]["text"] == "renewed"
        assert asked_of(url) == [*grants, "refresh_token"]
        assert server_of(config)["restarts"] == before["restarts"] + 1

        approved = {each["subject"]: each for each in _matters(config)}["login"]
        assert (approved["state"], approved["by"]) == ("approved", "person")
        assert _files_with_tokens() == ["secret"]

        gone = quarterdeck_json_forked("logout", "-c", str(config), "far")
        assert gone == {"server": "far", "revoked": True}
        eventually(lambda: server_of(config)["phase"] == "faulted", DEADLINE_S)
        assert server_of(config)["fault"]["code"] == "auth_needed"
    assert _files_with_tokens() == []


def _matters(config: Path) -> list[dict[str, Any]]:
    shown = quarterdeck_json_forked("trust", "list", "-c", str(config), "--all")
    [server] = [each for each in shown["servers"] if each["scope"] == str(config)]
    return list(server["items"])


def _files_with_tokens() -> list[str]:
    """The kinds of files below the state directory in which there is a token."""
    files = (path for path in state_dir().rglob("*") if path.is_file())
    return sorted(
        {path.suffix.strip(".") for path in files if any(word in path.read_bytes() for word in (b"at-", b"rt-"))}
    )


def post(url: str, what: str) -> None:
    urllib.request.urlopen(f"{origin_of(url)}/tests/{what}", data=b"", timeout=DEADLINE_S).close()


ABLE = {"elicitation": {"url": {}}}


def opened(question: JsonObject, url: str) -> str:
    """A person does what they are asked, in a browser; the id of what they were asked."""
    assert question["mode"] == "url"
    assert question["url"].startswith(f"{origin_of(url)}/authorize?")
    for named in ("'far'", origin_of(url)):
        assert named in question["message"]
    with urllib.request.urlopen(question["url"], timeout=DEADLINE_S) as page:
        assert page.status == 200
    return str(question["elicitationId"])


def test_a_client_asks_its_person_to_log_in_again_and_its_call_goes_on(url: str, tmp_path: Path) -> None:
    """A login that ends in the middle of work would end that work; a refusal leaves the words of before."""
    config = write_config(tmp_path / "mcp.json", far={"url": url})
    with serving(config, is_forked=True) as client:
        client.initialize(capabilities=ABLE)
        never = client.call("far__echo", text="nobody approved a login")
        assert "quarterdeck login far" in never["content"][0]["text"]
        assert client.server_requests == []
        assert quarterdeck_forked("login", "-c", str(config), "far", "--yes", "--file").returncode == 0
        eventually(lambda: server_of(config)["phase"] == "ready", DEADLINE_S)

        post(url, "end")
        asked: list[str] = []

        def agree(request: JsonObject) -> JsonObject:
            asked.append(opened(request["params"], url))
            return {"action": "accept"}

        call = client.send("tools/call", {"name": "far__echo", "arguments": {"text": "in again"}})
        assert client.reply(call, DEADLINE_S, agree)["result"]["content"][0]["text"] == "in again"
        told = [each["params"] for each in client.notifications if each["method"] == COMPLETE]
        assert told == [{"elicitationId": asked[0]}]
        assert _files_with_tokens() == ["secret"]

        post(url, "end")
        wish = {"name": "far__echo", "arguments": {"text": "not now"}}
        for answers in ([{"action": "decline"}], []):
            refused = client.reply(client.send("tools/call", wish), DEADLINE_S, lambda _, left=answers: left.pop())
            assert refused["result"]["isError"]
            assert "quarterdeck login far" in refused["result"]["content"][0]["text"]
            assert answers == [], "who has just declined is not asked at each call"
    assert quarterdeck_forked("logout", "-c", str(config), "far").returncode == 0


def test_a_client_of_2026_is_asked_by_the_result_of_its_call(url: str, tmp_path: Path) -> None:
    """No request of ours reaches such a client: it makes its call again, with what its person said."""
    config = write_config(tmp_path / "mcp.json", far={"url": url})
    with serving(config, is_forked=True) as client:
        client.discover(ABLE)
        assert quarterdeck_forked("login", "-c", str(config), "far", "--yes", "--file").returncode == 0
        eventually(lambda: server_of(config)["phase"] == "ready", DEADLINE_S)

        post(url, "end")
        quarterdeck_forked("restart", "-c", str(config), "far")  # ends with 4 as soon as it is known to want a login
        eventually(lambda: server_of(config)["phase"] == "faulted", DEADLINE_S)
        wish: JsonObject = {"name": "far__echo", "arguments": {"text": "in again"}}
        for action, is_error in (("accept", False), ("cancel", True)):
            asked = client.request("tools/call", wish, DEADLINE_S)
            assert asked["resultType"] == "input_required"
            [(key, question)] = asked["inputRequests"].items()
            assert question["method"] == "elicitation/create"
            if action == "accept":
                opened(question["params"], url)
            again = {"requestState": asked["requestState"], "inputResponses": {key: {"action": action}}}
            result = client.request("tools/call", wish | again, DEADLINE_S)
            assert bool(result.get("isError")) is is_error
            assert ("quarterdeck login far" if is_error else "in again") in result["content"][0]["text"]
            post(url, "end")
        declined = client.request("tools/call", wish, DEADLINE_S)
        assert declined["isError"], "who has just declined is not asked at each call"
    assert quarterdeck_forked("logout", "-c", str(config), "far").returncode == 0


def test_a_call_that_wants_another_scope_says_so_and_works_once_its_person_has_agreed(url: str, tmp_path: Path) -> None:
    """A user would see a denial; or the server would have itself let do more, or be restarted for it."""
    config = write_config(tmp_path / "mcp.json", far={"url": url})
    login = ("login", "-c", str(config), "far", "--file")
    assert quarterdeck_forked(*login, "--yes").returncode == 0
    with serving(config, is_forked=True) as client:
        client.initialize(capabilities=ABLE)
        denied = client.call("far__add", a=1, b=2)
        assert denied["isError"]
        for told in ("for want of the scope write", "quarterdeck login far ", " asks for it, too"):
            assert told in denied["content"][0]["text"]
        assert client.server_requests == [], "nothing is approved by a click in a client"
        assert client.call("far__echo", text="as before")["content"][0]["text"] == "as before"
        wanted = {each["subject"]: each for each in _matters(config)}["login"]
        assert wanted["state"] == "changed"

        declined = quarterdeck_forked(*login, "--json")
        assert declined.returncode == 2, "nobody is there to ask"
        assert "read write   (approved: read)" in declined.stderr
        started = server_of(config)["restarts"]
        assert quarterdeck_forked(*login, "--yes").returncode == 0
        assert client.call("far__add", a=1, b=2)["content"][0]["text"] == "3"
        assert server_of(config)["restarts"] == started
        assert quarterdeck_forked(*login, "--as-before", "--json").returncode == 0
    assert quarterdeck_forked("logout", "-c", str(config), "far").returncode == 0


class _Stay(urllib.request.HTTPRedirectHandler):
    """A browser that cannot reach where it is sent to."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """None: it stays where it is."""


@pytest.mark.nightly
def test_where_there_is_no_browser_the_url_is_pasted(url: str, tmp_path: Path) -> None:
    """A server in a cellar could not be logged in from; what is pasted must be of this very login."""
    config = write_config(tmp_path / "mcp.json", far={"url": url})
    words = command("login", "-c", str(config), "far", "--yes", "--file", "--no-browser", "--json")
    with subprocess.Popen(words, stdin=-1, stdout=-1, stderr=-1, text=True) as login:
        assert login.stderr is not None
        assert login.stdin is not None
        page = next(line.strip() for line in login.stderr if line.startswith(f"{origin_of(url)}/authorize?"))
        try:
            urllib.request.build_opener(_Stay).open(page, timeout=DEADLINE_S)
            pytest.fail("it is not sent back")
        except urllib.error.HTTPError as sent_back:
            back = sent_back.headers["Location"]
            sent_back.close()
        for line in (back.replace("state=", "state=x"), back.replace("127.0.0.1", "localhost"), back):
            login.stdin.write(f"{line}\n")
            login.stdin.flush()
        out, err = login.communicate(timeout=DEADLINE_S)
    assert login.returncode == 0, err
    assert "its state is not ours" in err
    assert "another address" in err
    assert json.loads(out)["login"] == {"issuer": origin_of(url), "resource": url, "scopes": ["read"]}
    assert [each["name"] for each in quarterdeck_json_forked("tools", "-c", str(config))["tools"]] == TOOLS
    assert quarterdeck_forked("logout", "-c", str(config), "far").returncode == 0


@pytest.mark.nightly
def test_a_machine_needs_nobody_and_its_login_is_held_when_it_widens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipeline has no person; its secret is no reason to let it do more from one day to the next."""
    monkeypatch.delenv("PYTHON_KEYRING_BACKEND")
    for name, value in install_keyring(tmp_path).items():
        monkeypatch.setenv(name, value)
    with forked_http_server("--life", "0", name="protected") as url:

        def config_of(**auth: object) -> Path:
            return write_config(tmp_path / "mcp.json", far={"url": url, "trust": "open", "auth": MACHINE | auth})

        config = config_of()
        shown = quarterdeck_json_forked("tools", "-c", str(config))
        assert [each["name"] for each in shown["tools"]] == TOOLS
        assert "refresh_token" not in asked_of(url)
        assert _files_with_tokens() == []
        assert "machine-s3cret" not in (tmp_path / "ring.json").read_text()

        held = absence(config_of(scopes=["read", "write"]))
        assert held["code"] == "login_held"
        assert "read write" in held["message"]
        login = quarterdeck_forked("login", "-c", str(config), "far", "--yes")
        assert login.returncode == 0, login.stderr
        assert "read write   (approved: read)" in login.stderr
        assert [each["name"] for each in quarterdeck_json_forked("tools", "-c", str(config))["tools"]] == TOOLS


@pytest.mark.nightly
def test_a_server_with_a_certificate_of_ones_own_authority_is_logged_in_at(tmp_path: Path) -> None:
    """A server of a company could be used with a token got by hand, and not by a login."""
    files = make_certificate(tmp_path)
    with forked_http_server("--tls", files.cert, files.key, name="protected") as url:
        row: dict[str, object] = {"url": url, "trust": "open", "auth": MACHINE}
        stranger = absence(write_config(tmp_path / "mcp.json", far=row))
        assert stranger["code"] == "login_failed"
        assert "certificate is not trusted" in stranger["message"]
        config = write_config(tmp_path / "mcp.json", far=row | {"ca_file": files.cert})
        shown = json.loads(quarterdeck_forked("tools", "-c", str(config), "--json").stdout)
        assert [each["name"] for each in shown["tools"]] == TOOLS, shown


@pytest.mark.nightly
def test_an_issuer_that_registers_nobody_learns_who_we_are_from_a_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A company that publishes one could not log in where nobody is registered; the issuer fetches and checks it."""
    files = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", files.cert)  # for the browser: of us nothing looks at it
    with forked_http_server("--tls", files.cert, files.key, "--documents", name="protected") as url:
        auth = {"client_metadata_url": f"{origin_of(url)}/client.json"}
        for row, code in (({}, 4), ({"auth": auth}, 0)):
            config = write_config(tmp_path / "mcp.json", far={"url": url, "ca_file": files.cert, **row})
            ended = quarterdeck_forked("login", "-c", str(config), "far", "--yes", "--file")
            assert ended.returncode == code, ended.stderr
        assert [each["name"] for each in quarterdeck_json_forked("tools", "-c", str(config))["tools"]] == TOOLS
        assert quarterdeck_forked("logout", "-c", str(config), "far").returncode == 0


@pytest.mark.nightly
def test_each_client_logs_in_for_itself(url: str, tmp_path: Path) -> None:
    """Anna's agent would act with her colleague's account; or the first who logs out take everybody along."""
    config = write_config(tmp_path / "mcp.json", far={"url": url, "scope": "client"})
    words = ("-c", str(config), "far")
    assert quarterdeck_forked("login", *words, "--yes", "--file").returncode == 0
    with serving(config, "--as", "anna", is_forked=True) as client:
        client.initialize(capabilities=ABLE)
        eventually(lambda: tools_of(client) == TOOLS, DEADLINE_S)
        early = client.call("far__echo", text="too early")
        assert f"quarterdeck login far -c {config} --client anna" in early["content"][0]["text"]
        assert client.server_requests == []
        done = quarterdeck_forked("login", *words, "--client", "anna", "--yes", "--file")
        assert "far: logged in for anna" in done.stdout, done.stderr
        eventually(lambda: not client.call("far__echo", text="in").get("isError"), DEADLINE_S)
        assert [each["client"] for each in server_of(config)["of_sessions"]] == ["anna"]

        assert quarterdeck_json_forked("logout", *words, "--client", "anna")["server"] == "far"
        eventually(lambda: server_of(config)["of_sessions"] == [], DEADLINE_S)
        late = client.call("far__echo", text="too late")
        assert "--client anna" in late["content"][0]["text"]
        assert server_of(config)["phase"] == "ready"
    plain = write_config(tmp_path / "plain.json", far={"url": url})
    refused = quarterdeck_forked("login", "-c", str(plain), "far", "--client", "anna", "--yes", "--file")
    assert "all clients share the login at far" in refused.stderr
