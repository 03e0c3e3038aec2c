"""Named grants: a piece of the user's own environment as paths, variables and one line for the receipt.

Files stay where they are and variables point there, because nothing can be mounted below the private home.  Read-only,
all of it: what a grant gives can be used, not changed.
"""

import os
import stat
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from quarterdeck_protocol.policy_values import Grant
from quarterdeck_sandbox import observed_files as observed
from quarterdeck_sandbox.program.launch import LaunchError

BROWSERS: Final = ("/opt/google", "/opt/microsoft/msedge", "/opt/brave.com", "/opt/vivaldi")
BROWSER_PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome", "firefox")


class Granted(msgspec.Struct, frozen=True):
    """What one grant gives: paths to read, variables that point there, and its line in the receipt."""

    paths: tuple[str, ...]
    shown: str
    env: Mapping[str, str] = msgspec.field(default_factory=dict)


class _Owner(msgspec.Struct, frozen=True):
    home: str
    environ: Mapping[str, str]

    def config(self, name: str) -> str:
        return os.path.join(self.environ.get("XDG_CONFIG_HOME") or f"{self.home}/.config", name)

    def named(self, variable: str, otherwise: str) -> str:
        return self.environ.get(variable) or otherwise


def give(grant: Grant, user_home: str, environ: Mapping[str, str]) -> Granted:
    """Return what `grant` gives of this user.  Raise LaunchError `sandbox_refused` if there is nothing to grant."""
    return _GIVERS[grant](_Owner(user_home, environ))


def _git_config(owner: _Owner) -> Granted:
    usual = (f"{owner.home}/.gitconfig", owner.config("git/config"))
    named = owner.environ.get("GIT_CONFIG_GLOBAL") or next(filter(observed.isfile, usual), usual[0])
    path = _require(Grant.GIT_CONFIG, named, "git config --global user.name … makes one", exists=observed.isfile(named))
    return Granted((path,), f"git-config: {path}", {"GIT_CONFIG_GLOBAL": path})


def _ssh_agent(owner: _Owner) -> Granted:
    agent = owner.environ.get("SSH_AUTH_SOCK", "")
    if not agent:
        raise _refusal(Grant.SSH_AGENT, "SSH_AUTH_SOCK is not set", "start an agent with eval $(ssh-agent)")
    paths = [_socket(Grant.SSH_AGENT, agent)]
    env = {"SSH_AUTH_SOCK": agent}
    known = f"{owner.home}/.ssh/known_hosts"
    shown = f"ssh-agent: {agent}, which can sign with every key in it"
    if observed.isfile(known) and not set(known) & set("'\" "):
        paths.append(known)
        env["GIT_SSH_COMMAND"] = f"ssh -o UserKnownHostsFile={known}"
        shown += f"; {known}"
    return Granted(tuple(paths), shown, env)


def _aws(owner: _Owner) -> Granted:
    files = {
        "AWS_CONFIG_FILE": owner.named("AWS_CONFIG_FILE", f"{owner.home}/.aws/config"),
        "AWS_SHARED_CREDENTIALS_FILE": owner.named("AWS_SHARED_CREDENTIALS_FILE", f"{owner.home}/.aws/credentials"),
    }
    present = {name: path for name, path in files.items() if observed.isfile(path)}
    if not present:
        raise _refusal(Grant.AWS, f"there is no {files['AWS_SHARED_CREDENTIALS_FILE']}", "aws configure makes it")
    return Granted(tuple(present.values()), f"aws: {', '.join(present.values())}", present)


def _gcloud(owner: _Owner) -> Granted:
    folder = owner.named("CLOUDSDK_CONFIG", owner.config("gcloud"))
    path = _require(Grant.GCLOUD, folder, "gcloud auth login makes it", exists=observed.isdir(folder))
    env = {"CLOUDSDK_CONFIG": folder}
    default = f"{folder}/application_default_credentials.json"
    if observed.isfile(default):
        env["GOOGLE_APPLICATION_CREDENTIALS"] = default
    return Granted((path,), f"gcloud: {folder}", env)


def _kube(owner: _Owner) -> Granted:
    said = owner.named("KUBECONFIG", f"{owner.home}/.kube/config")
    present = [path for path in said.split(os.pathsep) if path and observed.isfile(path)]
    if not present:
        raise _refusal(Grant.KUBE, f"there is no {said}", "set KUBECONFIG to the file that you use")
    env = {"KUBECONFIG": os.pathsep.join(present)}
    return Granted(tuple(present), f"kube: {', '.join(present)}", env)


def _gh(owner: _Owner) -> Granted:
    folder = owner.named("GH_CONFIG_DIR", owner.config("gh"))
    path = _require(Grant.GH, folder, "gh auth login makes it", exists=observed.isdir(folder))
    return Granted((path,), f"gh: {folder}", {"GH_CONFIG_DIR": folder})


def _browser(owner: _Owner) -> Granted:
    caches = {
        "PLAYWRIGHT_BROWSERS_PATH": owner.named("PLAYWRIGHT_BROWSERS_PATH", f"{owner.home}/.cache/ms-playwright"),
        "PUPPETEER_CACHE_DIR": owner.named("PUPPETEER_CACHE_DIR", f"{owner.home}/.cache/puppeteer"),
    }
    env = {name: path for name, path in caches.items() if observed.isdir(path)}
    folders = [*env.values(), *filter(observed.isdir, BROWSERS)]
    system = [path for name in BROWSER_PROGRAMS if observed.exists(path := f"/usr/bin/{name}")]
    if not folders and not system:
        raise _refusal(Grant.BROWSER, f"there is no browser in {', '.join(caches.values())}", "npx playwright install")
    return Granted(tuple(folders), f"browser: {', '.join([*folders, *system])}", env)


def _display(owner: _Owner) -> Granted:
    paths, env, shown = [], {}, []
    runtime, wayland = owner.environ.get("XDG_RUNTIME_DIR", ""), owner.environ.get("WAYLAND_DISPLAY", "")
    if wayland and (wayland.startswith("/") or runtime):
        socket = os.path.join(runtime, wayland)
        paths.append(_socket(Grant.DISPLAY, socket))
        env["WAYLAND_DISPLAY"] = socket
        if runtime:
            env["XDG_RUNTIME_DIR"] = runtime
        shown.append(socket)
    if display := owner.environ.get("DISPLAY", ""):
        number = display.rpartition(":")[2].split(".")[0]
        socket = f"/tmp/.X11-unix/X{number}"  # noqa: S108 - where every X server puts it
        if not display.startswith((":", "unix:")) or not number.isdecimal():
            raise _refusal(Grant.DISPLAY, f"DISPLAY is {display}, on another machine", "use one of this machine")
        paths.append(_socket(Grant.DISPLAY, socket))
        env["DISPLAY"] = f":{number}"
        shown.append(socket)
        cookie = owner.named("XAUTHORITY", f"{owner.home}/.Xauthority")
        if observed.isfile(cookie):
            paths.append(cookie)
            env["XAUTHORITY"] = cookie
    if not paths:
        raise _refusal(Grant.DISPLAY, "neither WAYLAND_DISPLAY nor DISPLAY is set", "start quarterdeck in a session")
    return Granted(tuple(paths), f"display: {', '.join(shown)}, which can see and type what you do", env)


_GIVERS: Final[Mapping[Grant, Callable[[_Owner], Granted]]] = {
    Grant.GIT_CONFIG: _git_config,
    Grant.SSH_AGENT: _ssh_agent,
    Grant.AWS: _aws,
    Grant.GCLOUD: _gcloud,
    Grant.KUBE: _kube,
    Grant.GH: _gh,
    Grant.BROWSER: _browser,
    Grant.DISPLAY: _display,
}


def _require(grant: Grant, path: str, remedy: str, *, exists: bool) -> str:
    if not exists:
        raise _refusal(grant, f"there is no {path}", remedy)
    return path


def _socket(grant: Grant, path: str) -> str:
    try:
        if stat.S_ISSOCK(observed.stat(path).st_mode):
            return path
    except OSError:
        pass
    raise _refusal(grant, f"{path} is not a socket", "nothing listens there any more: start what should")


def _refusal(grant: Grant, why: str, remedy: str) -> LaunchError:
    return LaunchError("sandbox_refused", f'"grants": ["{grant}"] gives nothing: {why} ({remedy})')
