"""Named grants: what each shows, the variables that point there, and what is said when there is nothing."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandbox.homes import Home, make_home
from support.config.places import short_folder

from quarterdeck_protocol.policy_values import Grant
from quarterdeck_sandbox.policy.mounts import MountKind
from quarterdeck_sandbox.program.launch import LaunchError
from quarterdeck_sandbox.view.grants import give


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return make_home(tmp_path)


@pytest.fixture
def listener() -> Iterator[str]:
    """The path of a socket, short enough for one."""
    with short_folder() as folder, socket.socket(socket.AF_UNIX) as sock:
        path = f"{folder}/s"
        sock.bind(path)
        yield path


@pytest.mark.parametrize(
    ("grant", "file", "variable", "to"),
    [
        (Grant.GIT_CONFIG, ".gitconfig", "GIT_CONFIG_GLOBAL", ".gitconfig"),
        (Grant.GIT_CONFIG, ".config/git/config", "GIT_CONFIG_GLOBAL", ".config/git/config"),
        (Grant.AWS, ".aws/credentials", "AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
        (Grant.AWS, ".aws/config", "AWS_CONFIG_FILE", ".aws/config"),
        (Grant.GCLOUD, ".config/gcloud/credentials.db", "CLOUDSDK_CONFIG", ".config/gcloud"),
        (Grant.KUBE, ".kube/config", "KUBECONFIG", ".kube/config"),
        (Grant.GH, ".config/gh/hosts.yml", "GH_CONFIG_DIR", ".config/gh"),
        (Grant.BROWSER, ".cache/ms-playwright/x", "PLAYWRIGHT_BROWSERS_PATH", ".cache/ms-playwright"),
    ],
)
def test_a_grant_shows_files_where_they_are_and_points_there(
    home: Home, grant: Grant, file: str, variable: str, to: str
) -> None:
    """The home inside is another, so programs would not find them."""
    home.file(file)
    place = str(home.user / to)
    granted = give(grant, str(home.user), {})
    assert granted.env[variable] == place
    assert place in granted.paths
    assert granted.shown.startswith(f"{grant}: ")
    assert place in granted.shown
    view = home.view(grants=(grant,))
    assert view.env[variable] == place
    assert view.shows(str(home.user / file))
    assert view.shown == (granted.shown,)
    assert not view.shows(str(home.user / ".ssh"))
    assert all(mount.kind is not MountKind.WRITE or "state" in mount.target for mount in view.mounts)


@pytest.mark.parametrize("grant", Grant)
def test_a_grant_of_nothing_is_refused_by_its_name(home: Home, grant: Grant) -> None:
    """A server would start without what it was given, and fail somewhere."""
    if grant is Grant.BROWSER:
        pytest.skip("a browser of the system would do")
    with pytest.raises(LaunchError, match=rf'"grants": \["{grant}"\] gives nothing: ') as caught:
        give(grant, str(home.user), {})
    assert caught.value.code == "sandbox_refused"


def test_the_users_own_variables_say_where_things_are(home: Home) -> None:
    """Somebody else's settings would be used, or none be found."""
    one, two = home.file("k/one"), home.file("k/two")
    granted = give(Grant.KUBE, str(home.user), {"KUBECONFIG": f"{one}:{home.user}/none:{two}"})
    assert granted.paths == (str(one), str(two))
    assert granted.env == {"KUBECONFIG": f"{one}:{two}"}
    aws = give(Grant.AWS, str(home.user), {"AWS_CONFIG_FILE": str(one)})
    assert aws.env == {"AWS_CONFIG_FILE": str(one)}


def test_an_agent_comes_with_the_hosts_that_are_known(home: Home, listener: str) -> None:
    """Ssh would refuse to talk to any host, as it knows none in its new home."""
    known = home.file(".ssh/known_hosts")
    home.file(".ssh/id_rsa")
    view = home.view(environ={"SSH_AUTH_SOCK": listener}, grants=("ssh-agent",))
    assert view.env["SSH_AUTH_SOCK"] == listener
    assert str(known) in view.env["GIT_SSH_COMMAND"]
    assert view.shows(listener)
    assert view.shows(str(known))
    assert not view.shows(str(home.user / ".ssh/id_rsa"))


def test_an_agents_grant_shows_no_keys(home: Home, listener: str) -> None:
    """Who lets a server sign with an agent would show it the private keys, in a folder that holds or leads to them."""
    key = str(home.file(".ssh/id_rsa"))
    link, environ = home.link("proj/keys", home.user / ".ssh"), {"SSH_AUTH_SOCK": listener}
    plan = home.plan("/bin/sh")
    with pytest.raises(LaunchError, match=r"leads into .*ssh keys"):
        home.view(plan, read=(str(link),), grants=("ssh-agent",), environ=environ)
    assert home.view(plan, read=(key,), grants=("ssh-agent",), environ=environ).shows(key)


@pytest.mark.parametrize(("grant", "folder", "shown"), [("aws", ".aws", "credentials"), ("kube", ".kube", "config")])
def test_a_grant_of_files_shows_nothing_beside_them(home: Home, grant: str, folder: str, shown: str) -> None:
    """Cached logins and other clusters' keys lie in the same folder, and would come with it."""
    home.file(f"{folder}/{shown}")
    home.file(f"{folder}/cache/token")
    plan, link = home.plan("/bin/sh"), str(home.link("proj/all", home.user / folder))
    with pytest.raises(LaunchError, match="leads into"):
        home.view(plan, read=(link,), grants=(grant,))
    file = str(home.link("proj/file", home.user / folder / shown))
    assert home.view(plan, read=(file,), grants=(grant,)).shows(str(home.user / folder / shown))


def test_a_dead_agent_is_no_agent(home: Home) -> None:
    """The server would be told of a socket that is a file."""
    stale = home.file("agent")
    with pytest.raises(LaunchError, match="is not a socket"):
        give(Grant.SSH_AGENT, str(home.user), {"SSH_AUTH_SOCK": str(stale)})


def test_a_display_is_its_socket_and_its_key(home: Home, listener: str) -> None:
    """A window could not be opened."""
    folder, name = listener.rsplit("/", 1)
    granted = give(Grant.DISPLAY, str(home.user), {"XDG_RUNTIME_DIR": folder, "WAYLAND_DISPLAY": name})
    assert granted.paths == (listener,)
    assert granted.env == {"WAYLAND_DISPLAY": listener, "XDG_RUNTIME_DIR": folder}
    with pytest.raises(LaunchError, match="on another machine"):
        give(Grant.DISPLAY, str(home.user), {"DISPLAY": "far.example:10.0"})


def test_settings_kept_elsewhere_are_reached_through_their_link(home: Home) -> None:
    """Many people keep theirs in a repository of such files."""
    real = home.file("dotfiles/gitconfig")
    link = home.link(".gitconfig", real)
    view = home.view(grants=("git-config",))
    assert view.env["GIT_CONFIG_GLOBAL"] == str(link)
    assert view.shows(str(real))
    assert view.shows(str(link))
    assert not view.shows(str(home.user / "dotfiles"))
