"""`quarterdeck doctor`: what this machine can enforce, found by trying, and what to do about each gap."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio
import msgspec

from quarterdeck.cli import options
from quarterdeck.cli.configure.config import print_unmet_names, unmet_names
from quarterdeck.cli.output import Cell, Column, print_json, print_line, print_paragraph, show
from quarterdeck.cli.source import Source, files_of, present_troubles, print_troubles
from quarterdeck.config.load.merge import MergedConfig, merge_files
from quarterdeck.config.places.trusted_files import trusted_files
from quarterdeck.fleet.start_preview import Outlook, StartPreview, preview_start, private_homes_folder
from quarterdeck.tools.installed import INSTALL, sentences
from quarterdeck.trust.configured_servers import command_options
from quarterdeck.trust.judge.server_rows import server_words
from quarterdeck_protocol.configs import StdioServerConfig
from quarterdeck_protocol.faults import fill_remedy, find_remedy
from quarterdeck_sandbox import Diagnosis, DiagnosisLine, Machine, SelfTest, diagnose, known_machine, self_test

STYLES: Final = {"ok": "green", "weaker": "yellow", "missing": "bold red"}

VERDICTS: Final = {
    0: "Everything is enforced in full.",
    1: "Servers run confined; what is weaker is listed above.",
    2: "Servers do not run confined on this machine.",
}
"""The last line, by exit code."""

OUTLOOKS: Final = {"starts": "green", "starts weaker": "yellow", "refused": "bold red"}

COUNTED: Final = {"starts": "would start", "starts weaker": "would start weaker", "refused": "would be refused"}
"""The words of the summary, by outlook."""


def doctor(config: options.Config = None, json: options.Json = False) -> None:
    """Find out what this machine can enforce, by attacking the sandbox that servers get, and what yours would get.

    Exit codes: 0 everything in full, 1 something is weaker or a server refused, 2 servers cannot be run confined.
    """
    machine, test = examine()
    diagnosis = diagnose(machine, test)
    found = read_config(config)
    servers, unmet = foresee(config, found, machine), unmet_names(found)
    troubles = present_troubles(Source(tuple(config or ())), found.troubles)
    code = max(diagnosis.exit_code, int(any(server.outlook != "starts" for server in servers)))
    if json:
        print_json(
            {
                "exit_code": code,
                **msgspec.to_builtins(diagnosis),
                "servers": servers,
                "unmet_names": unmet,
                "troubles": troubles,
                "machine": msgspec.to_builtins(machine, order="deterministic"),
            }
        )
    else:
        print_diagnosis(diagnosis)
        print_servers(servers, config or ())
        print_unmet_names(unmet)
        print_troubles(troubles)
        print_line(verdict(diagnosis.exit_code, servers), ("green", "yellow", "bold red")[code])
    if code:
        raise SystemExit(code)


def examine() -> tuple[Machine, SelfTest]:
    """Return the facts of this machine, and what its sandboxes hold; takes about half a second."""
    machine = known_machine()
    return machine, anyio.run(lambda: self_test(machine, place=private_homes_folder()))


def read_config(config: list[Path] | None) -> MergedConfig:
    """Return what the named files say, or those that are found."""
    return merge_files(files_of(config))


def foresee(config: list[Path] | None, found: MergedConfig, machine: Machine) -> list[StartPreview]:
    """Return whether each configured server would start, in their order; unusable rows come last."""
    trusted = trusted_files(config or (), found.servers)
    rows = [
        preview_start(server, machine, trusted)
        if isinstance(server, StdioServerConfig)
        else StartPreview(server.id, Outlook.STARTS, ("it is remote: it has no process here",))
        for server in found.servers
    ]
    return [*rows, *(StartPreview(row.id, Outlook.REFUSED, (row.message,), row.code) for row in found.broken)]


def print_servers(servers: list[StartPreview], files: Sequence[Path]) -> None:
    """Print how servers would start, then each reason once with its remedy; `files` were named."""
    if not servers:
        print_line("No server is configured.")
        return
    show(servers, (Column("CONFIGURED SERVER", "server"), Column("OUTLOOK", "outlook", OUTLOOKS)))
    print_line()
    reasons: dict[tuple[str, str], list[str]] = {}
    for each in servers:
        remedy = find_remedy(each.code, " ".join(each.why)) or ""
        remedy = fill_remedy(remedy, server_words(each.server, command_options(files)))
        for line in each.why:
            reasons.setdefault((line, remedy), []).append(each.server)
    for (line, remedy), named in reasons.items():
        print_paragraph(f"{', '.join(named)}: {line}")
        if remedy:
            print_paragraph(remedy, lead=Cell("  "))
    print_line()


def verdict(machine_code: int, servers: Sequence[StartPreview]) -> str:
    """Return the last line: what holds here, and what that means for the configured servers."""
    counted = Counter(each.outlook.value for each in servers)
    told = ", ".join(f"{counted[outlook]} {words}" for outlook, words in COUNTED.items() if counted[outlook])
    return VERDICTS[machine_code] + (f" Of the configured servers {told}." if told else "")


def print_diagnosis(diagnosis: Diagnosis) -> None:
    """Print three tables, and the remedies."""
    for title, lines in (
        ("MECHANISM", diagnosis.mechanisms),
        ('STANDARD POLICY, BY "' + diagnosis.tier.upper() + '"', diagnosis.properties),
        ("SELF-TEST", diagnosis.attacks),
    ):
        show(lines, (Column(title, "subject"), Column("STATE", "state", STYLES), Column("WHAT", "what", empty="")))
        print_line()
    by_remedy: dict[str, list[DiagnosisLine]] = {}
    for line in (*diagnosis.mechanisms, *diagnosis.properties, *diagnosis.attacks):
        if line.remedy:
            by_remedy.setdefault(line.remedy, []).append(line)
    for remedy, gaps in by_remedy.items():
        subjects = ", ".join(line.subject for line in gaps)
        print_paragraph(f"{subjects}: {gaps[0].what}", STYLES[gaps[0].state])
        for text in remedy.splitlines():
            print_paragraph(text, lead=Cell("  "))
    if lacking := sentences():
        for sentence in lacking:
            print_line(sentence, "yellow")
        print_line(f"  Install what they lack: {INSTALL}")
    print_line()
