"""`quarterdeck serve --profile …`: its command line, a workspace for it, and what its tools answer."""

from pathlib import Path
from typing import Any, Final

import mcp_types as types

from quarterdeck.config.places.paths import SessionPaths, WorkspacePaths
from support.clients.raw_client import RawStdioClient
from support.processes.commands import DEADLINE_S, command, popen_forked
from support.processes.identities import give_to_commands

AUTHORING: Final = ["read", "ls", "grep", "find", "websearch", "webfetch", "todo_read"]
SURVEY: Final = [*AUTHORING, "write", "edit", "bash", "process", "todo_set"]
ALL: Final = [*SURVEY, "todo", "bg-process", "task", "saas-action", "memory", "enter_plan_mode", "exit_plan_mode"]


def make_project(folder: Path) -> Path:
    """A new directory of an ordinary user's, whose commands may run."""
    folder.mkdir()
    (folder / "README.md").write_text("# A project\n")
    give_to_commands(folder, folder / "README.md")
    return folder


def native(workspace: Path, profile: str = "all") -> list[str]:
    return ["--profile", profile, "--workspace", str(workspace), "--allow-unsandboxed"]


def serve_argv(workspace: Path, profile: str = "all", *more: str) -> list[str]:
    """A serve of native tools alone."""
    return command("serve", *native(workspace, profile), *more)


def forked_serve(workspace: Path, profile: str = "all") -> RawStdioClient:
    words = ("serve", *native(workspace, profile))
    return RawStdioClient(words, deadline_s=DEADLINE_S, popen=popen_forked)


def sessions_of(paths: WorkspacePaths) -> list[SessionPaths]:
    return [paths.session(path.name) for path in sorted(paths.sessions.iterdir())]


def text_of(result: dict[str, Any]) -> str:
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")


def first_text(result: types.CallToolResult) -> str:
    (block, *_) = result.content
    assert isinstance(block, types.TextContent)
    return block.text
