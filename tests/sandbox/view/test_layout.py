"""What a confined process sees: the system, its program, what its policy names; the rest is refused or not there."""

import os
import socket
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from sandbox.homes import Home, make_home
from support.sandbox.machine_facts import ROOT_ONLY

from quarterdeck_protocol.policy import SandboxPolicy
from quarterdeck_protocol.policy_values import PolicyValues
from quarterdeck_sandbox.policy.mounts import in_order, is_within
from quarterdeck_sandbox.program.launch import LaunchError
from quarterdeck_sandbox.view import layout
from quarterdeck_sandbox.view.layout import Mount, MountKind, View, build_view, identity_mounts
from quarterdeck_sandbox.view.secret_paths import IN_A_HOME


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = make_home(tmp_path)
    home.file("proj/main.py")
    home.file("proj/out/x")
    for name in (".ssh/id_rsa", ".aws/credentials", ".config/gcloud/x", ".netrc"):
        home.file(name, "secret")
    return home


def at(view: View, target: object) -> Mount | None:
    return next((mount for mount in view.mounts if mount.target == str(target)), None)


def refused(home: Home, command: tuple[str, ...] = ("/bin/sh",), *, cwd: Path | None = None, **policy: object) -> str:
    with pytest.raises(LaunchError) as caught:
        plan = home.plan(*command, **({"cwd": str(cwd)} if cwd else {}))
        layout.require_visible(home.view(plan, **policy), plan, home.rules(**policy))
    assert caught.value.code == "sandbox_refused"
    return str(caught.value)


def test_the_standard_view_has_the_system_and_nothing_of_the_home(home: Home) -> None:
    """A server could not start, or could read what is the user's."""
    view = home.view()
    assert at(view, "/usr") == Mount(MountKind.READ, "/usr", "/usr")
    assert at(view, "/tmp") == Mount(MountKind.SCRATCH, "/tmp")
    for shown in ("/bin/sh", "/etc/localtime", "/etc/resolv.conf", "/etc/ssl/certs"):
        assert view.shows(shown) or not os.path.exists(shown)
    for hidden in (home.user, home.user / "proj", home.user / ".ssh", home.state, "/etc/shadow", "/etc/ssl/private"):
        assert not view.shows(str(hidden))
    assert view.shown == ()


def test_home_and_temporary_directory_are_its_own(home: Home) -> None:
    """What it keeps would be lost, or be the user's."""
    view = home.view()
    for name, place in (("HOME", home.places.home), ("TMPDIR", home.places.tmp)):
        assert view.env[name] == str(place)
        assert at(view, place) == Mount(MountKind.WRITE, str(place), str(place))


def test_a_trusted_process_sees_everything_as_it_is(home: Home) -> None:
    """The preset would not do what it says."""
    plan = home.plan("/bin/sh", str(home.user / "proj"), cwd=str(home.user))
    assert home.view(plan, preset="trusted") == View()
    assert View().shows(str(home.user))


def test_what_is_named_is_shown_and_in_the_receipt(home: Home) -> None:
    """A policy would not be followed, or nobody could see that it was."""
    home.file("data/x")
    view = home.view(read=(str(home.user / "proj"),), write=(str(home.user / "proj/out"), str(home.user / "data")))
    assert at(view, home.user / "proj").kind is MountKind.READ
    assert at(view, home.user / "proj/out").kind is MountKind.WRITE
    assert view.shows(str(home.user / "proj/main.py"))
    assert f"write: {home.user}/data" in view.shown
    assert f"read: {home.user}/proj" in view.shown


def test_what_is_hidden_lies_over_what_is_shown(home: Home) -> None:
    """A file that the policy excepts would be read."""
    view = home.view(
        read=(str(home.user / "proj"),), hidden=(str(home.user / "proj/out"), str(home.user / "proj/main.py"))
    )
    assert at(view, home.user / "proj/out") == Mount(MountKind.HIDE, str(home.user / "proj/out"), "folder")
    assert at(view, home.user / "proj/main.py") == Mount(MountKind.HIDE, str(home.user / "proj/main.py"), "file")
    assert not view.shows(str(home.user / "proj/out/x"))
    assert "hides" in refused(home, read=(str(home.user / "proj/out"),), hidden=(str(home.user / "proj"),))


@pytest.mark.parametrize("key", ["read", "write", "hidden"])
def test_a_path_that_does_not_exist_is_refused_by_its_key(home: Home, key: str) -> None:
    """A mistyped path would be found out by the server, some day."""
    message = refused(home, **{key: (str(home.user / "nothing"),)})
    assert message.startswith(f'"{key}" names {home.user}/nothing, which does not exist')


def test_links_are_shown_as_links_to_what_they_lead_to(home: Home) -> None:
    """A path that the server was told would be missing, or be one that its files do not have."""
    real = home.file("/data/big/x").parent
    link = home.link("big", real)
    view = home.view(home.plan("/bin/ls", str(link / "x")), read=(str(link),))
    assert at(view, real) == Mount(MountKind.READ, str(real), str(real))
    assert at(view, link) == Mount(MountKind.LINK, str(link), str(real))
    assert f"read: {link} ({real})" in view.shown


def test_a_link_into_credentials_is_no_way_around_their_name(home: Home) -> None:
    """A project could have the user's keys shown by a name of its own."""
    for target in (".ssh", ".aws/credentials"):
        link = home.link("proj/keys-" + target[1:4], home.user / target)
        assert "leads into" in refused(home, read=(str(link),))


def test_a_link_that_the_process_can_change_is_not_followed(home: Home) -> None:
    """It would choose what it is shown at its next start."""
    home.file("documents/x")
    link = home.link("proj/link", home.user / "documents")
    message = refused(home, write=(str(home.user / "proj"),), read=(str(link),))
    assert "which the process itself can change" in message


def test_a_program_behind_a_link_is_trusted_no_more_than_one_that_is_named(home: Home) -> None:
    """By its first line it would choose what it is shown at its next start."""
    hidden = home.program("documents/run")
    tool = home.program("proj/tool", f"#!{hidden}\n")
    for command in (tool, home.link("bin/tool", tool)):
        message = refused(home, (str(command),), write=(str(home.user / "proj"),))
        assert message.startswith(f"{tool}, which the process itself can change, leads to {hidden}")


@ROOT_ONLY
def test_a_link_of_another_user_is_not_followed(home: Home) -> None:
    """That user would choose what is shown."""
    link = home.link("proj/link", home.file("documents/x").parent)
    os.lchown(link, 12345, 12345)
    assert "uid 12345" in refused(home, read=(str(link),))


@pytest.mark.parametrize("key", ["read", "write"])
@pytest.mark.parametrize("broad", [".", "..", ".config"])
def test_credentials_inside_something_broader_are_refused(home: Home, key: str, broad: str) -> None:
    """Whoever shows a folder has not thought of all that is in it."""
    policy = SandboxPolicy.model_validate({key: (os.path.normpath(home.user / broad),)}).values
    plan, places = home.plan("/bin/sh"), replace(home.places, private=())
    with pytest.raises(LaunchError, match=r"contains .*(credentials|keys)"):
        build_view(policy, plan, home.resolve(plan), places, {})


def test_credentials_are_shown_to_whom_they_are_named(home: Home) -> None:
    """There would be no way to use them."""
    config, gcloud = str(home.user / ".config"), str(home.user / ".config/gcloud")
    assert home.view(read=(str(home.user / ".aws"),)).shows(str(home.user / ".aws/credentials"))
    assert home.view(read=(config, gcloud)).shows(gcloud)
    assert not home.view(read=(config,), hidden=(gcloud,)).shows(gcloud)
    assert home.view(read=(config,), grants=("gcloud",)).env["CLOUDSDK_CONFIG"] == gcloud


def test_our_own_directories_are_shown_to_nobody(home: Home) -> None:
    """A server could read the others' homes, or speak to the supervisor."""
    other = home.file(".local/state/quarterdeck/other/home/x").parent
    for place in (home.user / ".local", home.state, other, home.places.home / "x"):
        place.mkdir(exist_ok=True)
        assert "quarterdeck's own" in refused(home, read=(str(place),))


@pytest.mark.parametrize(
    "place", ["/", "/proc", "/proc/self", "/sys/kernel", "/dev", "/run", "/etc", "/tmp", "/home", "/var"]
)
def test_some_folders_can_never_be_given(home: Home, place: str) -> None:
    """A sandbox would have a door to all there is."""
    if not os.path.exists(place):
        pytest.skip("not on this machine")
    assert place in refused(home, write=(place,))


def test_a_socket_can_never_be_given(home: Home) -> None:
    """What listens behind Docker's does whatever it is asked, outside."""
    path = str(home.user / "s.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(home.user, os.O_RDONLY)
        try:
            listener.bind(f"/proc/self/fd/{here}/s.sock")
        finally:
            os.close(here)
        assert "neither a file nor a folder" in refused(home, read=(path,))
        assert "trusted" in refused(home, ("/bin/ls", f"unix={path}"))


def test_nothing_is_mounted_below_what_can_be_written(home: Home) -> None:
    """The process could lead the mount point elsewhere, and with it ours (CVE-2026-87766)."""
    proj, main = str(home.user / "proj"), str(home.user / "proj/main.py")
    for policy in ({"read": (main,)}, {"hidden": (main,)}):
        assert "CVE-2026-87766" in refused(home, write=(proj,), **policy)


def test_on_a_safe_bubblewrap_it_is(home: Home) -> None:
    """A folder could not be written to but for its settings."""
    proj, main = str(home.user / "proj"), str(home.user / "proj/main.py")
    policy, plan = PolicyValues(write=(proj,), read=(main,)), home.plan("/bin/sh")
    view = build_view(policy, plan, home.resolve(plan), home.places, {}, nests_safely=True)
    assert at(view, main).kind is MountKind.READ


def test_what_may_be_read_within_what_may_be_written_is_closed_by_other_means(home: Home) -> None:
    """A folder could not be written to but for its settings, where bubblewrap is old."""
    proj, main = str(home.user / "proj"), str(home.user / "proj/main.py")
    policy, plan = PolicyValues(write=(proj,), read=(main,)), home.plan("/bin/sh")
    view = build_view(policy, plan, home.resolve(plan), home.places, {}, can_close=True)
    assert view.closed == (main,)
    assert at(view, main) is None
    assert view.shows(main)
    hidden = PolicyValues(write=(proj,), hidden=(main,))
    with pytest.raises(LaunchError, match="CVE-2026-87766"):
        build_view(hidden, plan, home.resolve(plan), home.places, {}, can_close=True)


@pytest.mark.parametrize("form", ["{0}", "--root={0}", "file://{0}", "ROOT={0}", "--allow=/usr,{0}", "/usr:{0}"])
def test_an_argument_that_exists_and_is_hidden_is_an_error(home: Home, form: str) -> None:
    """The server would start, and say that nothing is there."""
    proj = str(home.user / "proj")
    message = refused(home, ("/bin/ls", form.format(proj)))
    assert message == f'{proj} is hidden: add "read": ["{proj}"] or "write": ["{proj}"] to its sandbox'
    assert home.view(home.plan("/bin/ls", form.format(proj)), read=(proj,)).shows(proj)


@pytest.mark.parametrize(
    "argument",
    ["-y", "@scope/server", "/no/such/path", "https://example.com/usr", "a\0b", "/", "/usr/bin", "/dev/null"],
)
def test_other_arguments_are_no_paths(home: Home, argument: str) -> None:
    """A server would be refused for what only looks like a path, or is seen by all."""
    assert home.view(home.plan("/bin/ls", argument))


def test_a_relative_argument_that_leads_out_is_an_error(home: Home) -> None:
    """The directory that it counts from may be shown alone."""
    proj = str(home.user / "proj")
    home.file("other/x")
    plan = home.plan("/bin/ls", "../other", "./main.py", cwd=proj)
    with pytest.raises(LaunchError, match=f"{home.user}/other is hidden"):
        layout.require_visible(home.view(plan, read=(proj,)), plan, home.rules(read=(proj,)))


def test_an_argument_in_the_private_home_is_the_servers_own(home: Home) -> None:
    """A server would be refused from its second start on: the first one makes `~/Documents` a link to the user's."""
    plan = home.plan("/bin/ls", "./Documents/report", "Documents/")
    home.file("Documents/report")
    (home.places.home / "Documents").symlink_to(home.user / "Documents")
    layout.require_visible(home.view(plan), plan, home.rules())


def test_a_hidden_working_directory_is_an_error(home: Home) -> None:
    """The server would start elsewhere."""
    message = refused(home, cwd=home.user / "proj")
    assert message.startswith(f"the working directory {home.user}/proj is hidden: add ")


def test_an_argument_among_credentials_is_answered_by_their_grant(home: Home) -> None:
    """Showing the files is not all that it takes."""
    assert '"grants": ["aws"]' in refused(home, ("/bin/ls", str(home.user / ".aws/credentials")))


def test_a_key_that_is_named_is_not_answered_by_the_agents_grant_alone(home: Home) -> None:
    """The server would be refused again with the same words: the grant does not show the file."""
    key = str(home.user / ".ssh/id_rsa")
    assert refused(home, ("/bin/ls", key)).startswith(f'{key} is hidden: add "read": ["{key}"] to its sandbox; or take')


def test_the_programs_prefix_is_in_the_receipt(home: Home) -> None:
    """Nobody would know what of a home is shown."""
    python = home.venv("venv", Path("/usr/bin/python3"))
    view = home.view(home.plan(python))
    assert view.shown == (f"read: {home.user}/venv (a virtual environment)",)
    assert view.shows(str(python))


def test_a_program_cannot_name_what_it_wants_to_see_next_time(home: Home) -> None:
    """It may write its own environment; a line there would show any folder."""
    home.file("documents/x")
    python = home.venv("proj/.venv", Path("/usr/bin/python3"))
    home.file("proj/.venv/lib/python3.12/site-packages/x.pth", f"{home.user}/documents\n")
    message = refused(home, (str(python),), write=(str(home.user / "proj"),))
    assert f'add "read": ["{home.user}/documents"]' in message


def test_certificates_that_the_environment_names_are_shown(home: Home) -> None:
    """Behind a company's proxy nothing could be reached."""
    bundle = home.file("ca.pem", "-----BEGIN CERTIFICATE-----\nx\n")
    view = home.view(home.plan("/bin/sh", NODE_EXTRA_CA_CERTS=str(bundle)))
    assert at(view, bundle).kind is MountKind.READ
    for text in ("secret", "-----BEGIN PRIVATE KEY-----\n-----BEGIN CERTIFICATE-----\n"):
        bundle.write_text(text)
        assert not home.view(home.plan("/bin/sh", NODE_EXTRA_CA_CERTS=str(bundle))).shows(str(bundle))


def test_a_file_that_is_too_large_for_certificates_is_not_looked_through(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start would read as much as a server's variable names, into memory."""
    monkeypatch.setattr(layout, "MAX_CERTIFICATES_BYTES", 100)
    for size, is_shown in ((100, True), (101, False)):
        bundle = home.file(f"{size}.pem", "-----BEGIN CERTIFICATE-----".ljust(size))
        assert home.view(home.plan("/bin/sh", SSL_CERT_FILE=str(bundle))).shows(str(bundle)) is is_shown


def test_users_and_names_can_be_put_in_later(home: Home) -> None:
    """They depend on whom it runs as, and on its network."""
    hosts = Mount(MountKind.DATA, "/etc/hosts", "127.0.0.1 localhost\n")
    view = home.view().with_mounts((*identity_mounts(61184, 61184, "/h"), hosts))
    assert "sandbox:x:61184:61184::/h:/bin/sh\n" in at(view, "/etc/passwd").source
    assert "sandbox:x:61184:\n" in at(view, "/etc/group").source
    assert at(view, "/etc/hosts") == hosts
    assert view.mounts == in_order(view.mounts)
    assert len({mount.target for mount in view.mounts}) == len(view.mounts)


OTHERS = [".", "..", "proj", "proj/out", "proj/main.py", "nothing", "link", "link/id_rsa", "documents", ".ssh/id_rsa"]
OTHERS += [".aws/credentials", ".config", ".cache", ".local", ".local/share", ".local/state/quarterdeck"]
NAMES = st.sampled_from([*OTHERS, *IN_A_HOME])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(NAMES, max_size=3), st.lists(NAMES, max_size=3), st.lists(NAMES, max_size=2))
def test_no_view_shows_what_nobody_named(home: Home, read: list[str], write: list[str], hidden: list[str]) -> None:
    """Of all policies that are not refused, none shows our own directories or credentials that it does not name."""
    link = home.user / "link"
    if not link.is_symlink():
        link.symlink_to(home.user / ".ssh")
        home.file("documents/x")
        for name in IN_A_HOME:
            if not (home.user / name).exists():
                home.file(name)
    named = {
        key: tuple(dict.fromkeys(os.path.normpath(home.user / name) for name in names))
        for key, names in (("read", read), ("write", write), ("hidden", hidden))
    }
    try:
        view = home.view(**named)
    except (LaunchError, ValueError):
        return
    for name in IN_A_HOME:
        place = str(home.user / name)
        if not any(is_within(path, place) for path in (*named["read"], *named["write"])):
            assert not view.shows(place)
    assert not view.shows(str(home.state / "other"))
    assert not view.shows(str(home.user))
    for index, mount in enumerate(view.mounts):
        above = View(view.mounts[:index]).covering(mount.target) if index else None
        assert above is None or above.kind is not MountKind.WRITE
        assert os.path.normpath(mount.target) == mount.target
        if mount.kind in {MountKind.READ, MountKind.WRITE}:
            assert os.path.realpath(mount.source) == mount.source
