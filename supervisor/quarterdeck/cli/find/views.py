"""Show what a server is, what it sees, and what it lists, to whoever is to decide about it."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec

from quarterdeck.check.observed import Observed
from quarterdeck.check.schemas import shown
from quarterdeck.cli.exits import UsageError
from quarterdeck.cli.observed_view import print_observed
from quarterdeck.cli.output import Cell, Column, describe_key, print_line, show
from quarterdeck.cli.parameters import Option
from quarterdeck.cli.run.servers import describe_policy
from quarterdeck.common.words import clipped, counted, flat, one_line
from quarterdeck.config.secrets.masking import mask_args, mask_text
from quarterdeck.ledger.events.events import LISTED, ORDER, Subject
from quarterdeck.ledger.events.fold import Book, ItemKey
from quarterdeck.trust.judge.documents import Document, value_of
from quarterdeck.trust.scan import Finding, scan_definition
from quarterdeck.trust.scan.tool_names import names_around, names_by_server
from quarterdeck_protocol.configs import ServerConfig, StdioServerConfig
from quarterdeck_sandbox import HOME_NOTE

from .trial import Trial

AcceptFindings = Annotated[
    bool, Option("--accept-findings", help="With --yes: go on despite findings of the scan, or a decoy that it took.")
]

MAX_TOOLS: Final = 40
"""Shown, of what a server lists; --whole shows all."""

MAX_OTHERS: Final = 5
"""Shown of each other kind: servers list resources by the hundred."""

MAX_FINDINGS: Final = 12
"""Shown, the tools' first."""

_EXCERPT_CHARS: Final = 80

_WORDS_CHARS: Final = 160

_LABEL: Final = 9

Findings = Mapping["ItemKey", "Sequence[Finding]"]


def print_config(config: ServerConfig) -> None:
    """Print how a server is started or reached, and its environment; secrets by name only."""
    if not isinstance(config, StdioServerConfig):
        _fact("url", mask_text(str(config.url)))
        if config.headers:
            _fact("headers", ", ".join(config.headers))
        _fact("runs", "elsewhere: no sandbox of yours holds it, and what it is sent leaves this machine")
        return
    _fact("command", shlex.join([config.command, *map(str, mask_args(config.args))]))
    policy = describe_policy(msgspec.json.encode(config.sandbox.model_dump(mode="json", exclude_unset=True)))
    _fact("policy", policy or "the standard one")
    names = [*config.env, *config.inherit_env]
    _fact("env", ", ".join(names) if names else "nothing of yours")


def print_trial(trial: Trial) -> None:
    """Print what confined the server in its trial."""
    receipt = trial.receipt
    if receipt is None:
        return
    _fact("sandbox", receipt.bubblewrap or receipt.tier)
    _fact("network", receipt.network)
    files = [each for each in receipt.shown if not each.startswith(HOME_NOTE)]  # its home was thrown away
    _fact("files", "; ".join(files) or "its own home, and the system's programs")
    for gap in receipt.gaps:
        _fact("weaker", gap, "yellow")
    print_world(trial)


def print_world(trial: Trial) -> None:
    """Print what the server did with the decoys of its trial."""
    if trial.observed is not None:
        print_line()
        print_observed(trial.observed, in_full=False)
        print_line("  none of its tools was called: quarterdeck check calls them", "dim")


def print_offer(documents: Sequence[Document], findings: Findings, *, whole: bool) -> None:
    """Print what a server lists, a line each (`whole`: every definition), and the scan's findings."""
    print_line()
    rows: list[dict[str, object]] = []
    counts: list[str] = []
    for kind in sorted(LISTED, key=lambda each: (each is not Subject.TOOL, ORDER[each])):
        listed = sorted((each for each in documents if each.key.subject is kind), key=lambda each: each.key.name)
        shown = listed if whole else listed[: MAX_TOOLS if kind is Subject.TOOL else MAX_OTHERS]
        counts += [counted(len(listed), str(kind))] if listed else []
        rows += [{"name": describe_key(each.key), "says": _words(each)} for each in shown]
        if len(shown) < len(listed):
            rest = Cell(f"… {len(listed) - len(shown):,} more", "dim")
            rows.append({"name": rest, "says": Cell("--whole shows them", "dim")})
    print_line(f"it lists {', '.join(counts) or 'nothing'}", "bold")
    show(rows, (Column("NAME", "name", "cyan"), Column("WHAT IT SAYS", "says", empty="")), indent="  ")
    if whole:
        for each in documents:
            print_line(describe_key(each.key), "bold")
            print_line(msgspec.json.format(each.body, indent=2).decode(errors="replace"))
    print_findings(findings)


def print_findings(findings: Findings) -> None:
    """Print the scan's findings, a line each."""
    told = [(key, each) for key, found in findings.items() for each in found]
    told.sort(key=lambda pair: pair[0].subject != "tool")
    for key, each in told[:MAX_FINDINGS]:
        place, excerpt = flat(each.place) or "the whole", clipped(flat(each.excerpt), _EXCERPT_CHARS)
        print_line(f"  scan: {each.rule} in {describe_key(key)}, {place}: {flat(each.sentence)}: {excerpt!r}", "red")
    if len(told) > MAX_FINDINGS:
        print_line(f"  scan: and {counted(len(told) - MAX_FINDINGS, 'more finding')}", "red")


def refuse_unseen(findings: Findings, observed: Observed | None, outcome: str, newly_done: Sequence[str] = ()) -> None:
    """Raise CommandError if the scan found something that no user has seen, or the server took a decoy, or did what it
    never did before.
    """
    if observed is not None and observed.taken:
        where = ", ".join(f"{each.path} in {shown(each.carrier)}" for each in observed.taken[:5])
        raise UsageError(
            f"in its trial it took a decoy and sent its content, {where}: {outcome}",
            "do not use this server; if you know why it does that: --accept-findings",
        )
    remedy = "look at it, without --yes; or say that you did: --accept-findings"
    if newly_done:
        deeds = "; ".join(map(shown, newly_done[:5]))
        raise UsageError(f"in its trial it did what the present version does not, {deeds}: {outcome}", remedy)
    if findings:
        where = ", ".join(describe_key(key) for key in list(findings)[:5])
        raise UsageError(f"the scan found something in {where}: {outcome}", remedy)


def scanned(documents: Sequence[Document], book: Book, scope: str, server: str) -> Findings:
    """Return the scan's findings in what a server lists, given the names of known servers."""
    names = names_around(names_by_server(book), scope, server)
    found = ((each.key, scan_definition(*each.key, value_of(each.body), names)) for each in documents)
    return {key: findings for key, findings in found if findings}


def view_offer(documents: Sequence[Document], findings: Findings) -> dict[str, object]:
    """Return an offer for programs."""
    return {
        "lists": [{"subject": each.key.subject.value, "name": each.key.name, "hash": each.hash} for each in documents],
        "findings": [
            {"subject": key.subject.value, "name": key.name, "rule": each.rule, "place": each.place}
            for key, found in findings.items()
            for each in found
        ],
    }


def _words(document: Document) -> str:
    value = value_of(document.body)
    text = value.get("description") or value.get("title") if isinstance(value, dict) else ""
    return clipped(one_line(text), _WORDS_CHARS) if isinstance(text, str) else ""


def _fact(label: str, text: str, style: str = "") -> None:
    print_line(f"  {label:{_LABEL}} {text}", style)
