"""What a policy and a fault say of a row, said in the options of a command."""

import inspect

import pytest

from quarterdeck.cli.run import sandbox_options
from quarterdeck.common.run_options import OPTIONS, REMEDIES_OF_RUN, in_options, of_run
from quarterdeck_protocol.faults import REMEDIES, Dossier, FaultKind, ProtocolFault, ReplyError


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ('/a: add "read": ["/a"] or "write": ["/a"] to its sandbox', "/a: add --read /a or --write /a"),
        ('/a b is hidden: add "read": ["/a b"] to its sandbox', "/a b is hidden: add --read '/a b'"),
        ('add "grants": ["aws"], or "read": ["/h/.aws"] to its sandbox', "add --grant aws, or --read /h/.aws"),
        ('add "hidden": ["/h/.ssh"], or name it in "read"', "add --hide /h/.ssh, or name it in --read"),
        ('"write" names /x, which does not exist', "--write names /x, which does not exist"),
        ('add "network": ["a:1", "b:2"]', "add --network a:1 --network b:2"),
        ('or use "network": "full" to leave it open', "or use --network full to leave it open"),
        ('use "grants", or "preset": "trusted"', "use --grant, or --preset trusted"),
        ('"grants": ["display", "aws"] would open', "--grant display --grant aws would open"),
        ('use "preset": "standard"', "use --preset standard"),
        ('raise "limits": {"memory_bytes": …}', "raise --limit memory_bytes=…"),
        ('use "minimum": "limits" to start', 'use "minimum": "limits" in the file of --policy to start'),
        ('take it out of "require"', 'take it out of "require" in the file of --policy'),
        ('bash: "ready": command not found', 'bash: "ready": command not found'),
    ],
)
def test_a_key_is_said_as_its_option(said: str, shown: str) -> None:
    """Whoever types a command would look for a file in which to write JSON."""
    assert in_options(said) == shown


def test_each_option_exists() -> None:
    """A hint would name an option that the command refuses."""
    parameters = inspect.signature(sandbox_options._wish).parameters
    assert {option.removeprefix("--") for option in OPTIONS.values()} <= set(parameters)


OF_REMOTE = frozenset({"auth_needed", "keyring_unusable", "login_failed", "request_refused", "scope_needed"})
"""Codes that the server of a `run`, which is a process and has no secrets of a keyring, never ends with."""


def test_no_fix_of_a_run_names_what_only_a_row_has() -> None:
    """A user would be sent to `allow`, `ps` or a file, and find no such server there."""
    words = ("quarterdeck allow", "quarterdeck ps", "quarterdeck restart", "its row say", "the row's", "_timeout_s")
    for code in REMEDIES.keys() - OF_REMOTE:
        remedy = of_run(ProtocolFault("spawn_failed", "x", code=code)).remedy_for("cat-1a2b3c")
        assert remedy is not None, code
        assert not any(word in remedy for word in words), (code, remedy)
    assert REMEDIES_OF_RUN.keys() <= REMEDIES.keys()


def test_a_call_of_a_run_that_failed_is_told_the_option_that_helps() -> None:
    """A client would be given the words of a row, and "restart tries again"."""
    message = '/home/u/notes is hidden: add "read": ["/home/u/notes"] or "write": ["/home/u/notes"] to its sandbox'
    dossier = Dossier(hints=('/home/u/x exists but is hidden; add "read": ["/home/u/x"]',))
    cause = ProtocolFault("spawn_failed", message, code="sandbox_refused", dossier=dossier)
    call = ProtocolFault.not_sent(FaultKind.NOT_CONNECTED, f"cat is faulted: {message}", "not_connected", cause)
    said = of_run(call)
    assert said.message == "cat is faulted: /home/u/notes is hidden: add --read /home/u/notes or --write /home/u/notes"
    assert said.remedy == REMEDIES_OF_RUN["sandbox_refused"]
    assert (said.code, said.delivery, said.kind, said.cause) == (call.code, call.delivery, call.kind, cause)
    shown = of_run(cause).dossier
    assert shown.hints == ("/home/u/x exists but is hidden; add --read /home/u/x",)


def test_what_a_server_replied_stays_its_own_word() -> None:
    """A server's text that looks like ours would be changed on its way."""
    text = 'add "read": ["/a"]'
    fault = ProtocolFault("tool_error", text, code="reply_error", reply=ReplyError(-32602, text))
    assert of_run(fault) is fault
