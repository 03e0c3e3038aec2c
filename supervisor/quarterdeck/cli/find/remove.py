"""`quarterdeck remove`: take a server out of the file that it is in."""

from quarterdeck.cli import options
from quarterdeck.cli.exits import UsageError, as_command_error
from quarterdeck.cli.file_change import FileChange, as_it_was, print_diff
from quarterdeck.cli.output import hint, is_confirmed, print_json, print_outcome
from quarterdeck.cli.source import Named, check_server, load
from quarterdeck.common.words import utf8
from quarterdeck.config.clients.user_file import UserFileError, read_user_file
from quarterdeck.config.load.document import DocumentError
from quarterdeck.config.load.jsonc import remove_member
from quarterdeck.config.load.origin import steps_of
from quarterdeck.config.load.text_edit import EditError

from .row_change import place_of


def remove(
    source: Named,
    server: options.ServerId,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    json: options.Json = False,
) -> None:
    """Take a server out of your configuration; what it kept on disk stays until quarterdeck purge."""
    settings = load(source)
    check_server(settings, server)
    origin = settings.origin(server)
    path, _ = place_of(origin)
    try:
        with as_command_error(UserFileError, remedy=f"make {path} a file of your own that can be read"):
            old = read_user_file(path).text
        new = remove_member(old, steps_of(origin.pointer), has_comments=True)
    except (DocumentError, EditError) as error:
        raise UsageError(f"{path} is not changed: {error}", f"take {origin.location} out of it by hand") from error
    change = FileChange(path, old, new)
    if not json:
        print_diff(change.diff)
    is_wanted = not dry_run and (yes or is_confirmed(f"remove {server}?", can_ask=not json))
    backup = change.write() if is_wanted else None
    if json:
        diff = [utf8(line) for line in change.diff]
        print_json({"server": server, "path": utf8(path), "changed": is_wanted, "diff": diff})
        return
    print_outcome(f"{server} is taken out of {path}{as_it_was(backup)}", is_done=is_wanted, dry_run=dry_run)
    if is_wanted:
        hint(f"quarterdeck purge {server} removes its home and its log")
