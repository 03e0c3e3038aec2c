"""`quarterdeck why`: one call's whole story."""

from collections.abc import Iterable
from typing import Annotated

import msgspec

from quarterdeck.cli import options
from quarterdeck.cli.exits import NotFoundError
from quarterdeck.cli.output import print_json, print_line
from quarterdeck.cli.parameters import Argument
from quarterdeck.cli.run.servers import describe_policy, print_fault
from quarterdeck.common.words import duration, size
from quarterdeck.config.places.runtime_directory import find_all_serving
from quarterdeck.daemon.control.call_story import CallStory, Judgement, Moment, tell_call, with_receipt
from quarterdeck.daemon.control.client import NoAnswerError, NotServingError, ask
from quarterdeck.daemon.control.protocol import Inspect, Inspection
from quarterdeck.ledger.events.history import short
from quarterdeck.trust.judge.overview import State

from .context import reading
from .ledger import have_calls_written
from .ledger_views import denied_of, view_call


def why(
    number: Annotated[int, Argument(metavar="NUMBER", help="Of a call, as ledger calls shows it.")],
    json: options.Json = False,
) -> None:
    """Tell one call's whole story: who made it, what was approved then, its server's life, its time and its end."""
    have_calls_written()
    with reading() as reader:
        story = tell_call(reader, number)
    if story is None:
        raise NotFoundError(f"there is no call {number}, or it is not kept any more", "quarterdeck ledger calls")
    story = with_receipt(story, _inspect(story))
    if json:
        members = {name: getattr(story, name) for name in CallStory.__struct_fields__}
        print_json({**members, "call": view_call(story.call)})
    else:
        print_story(story)


def _inspect(story: CallStory) -> Inspection | None:
    """Ask those who serve for the process that took the call."""
    for place in find_all_serving() if story.pid is not None else ():
        try:
            answer = ask(place, Inspect(story.call.server))
        except (NotServingError, NoAnswerError):
            continue
        if isinstance(answer, Inspection) and answer.server.pid == story.pid:
            return answer
    return None


def print_story(story: CallStory) -> None:
    """Print a story, a fact a line."""
    call, receipt = story.call, story.receipt
    ended = ", ".join(filter(None, (call.outcome, call.code)))
    print_line(f"call {call.number}: {call.tool} of {call.server}: {ended}", "bold")
    launch, *others = story.verdicts
    waits = ((call.queued_ms, "waited for its turn"), (call.woke_ms, "waited for its server to start"))
    spent = [f"{words} {duration(spent_ms / 1000)}" for spent_ms, words in waits if spent_ms >= 1]
    is_sent = call.delivery != "not_sent" or call.duration_ms > 0
    took = f"took {duration(call.duration_ms / 1000)}" if is_sent else "was not sent"
    print_facts(
        ("client", ", ".join(filter(None, (call.program, call.client))) or "the only one"),
        ("asked", story.began_at),
        ("time", ", ".join((*spent, took))),
        ("ended", f"{call.at}, {size(call.bytes)}, delivery: {call.delivery}"),
        ("route", f"{call.server} of {call.scope}" + (f" ({story.transport})" if story.transport else "")),
        ("source", story.source),
        ("package", story.package + (f", seal {short(story.seal)}" if story.seal else "")),
        ("verdict", describe(launch)),
        *(("", describe(each)) for each in others),
        *_moments("before", story.before),
        *_moments("server", (story.life,) if story.life is not None else ()),
        *_moments("after", story.after),
        ("policy", _policy(story.policy) if story.transport == "stdio" else ""),
        ("sandbox", f"{receipt.bubblewrap or receipt.tier}, network {receipt.network}" if receipt else story.note),
        *(("", f"{each.name}: {each.strength}, {each.mechanism}") for each in (receipt.properties if receipt else ())),
        ("denied", denied_of(call)),
    )
    if story.fault is not None:
        print_fault(story.fault)


def print_facts(*facts: tuple[str, str]) -> None:
    """Print facts that are not empty, the label of each where it changes."""
    before = ""
    for label, text in facts:
        if text:
            print_line(f"  {label if label != before else '':9}{text}")
            before = label


def describe(judgement: Judgement) -> str:
    """Return a verdict in words."""
    if not judgement.state:
        return f"{judgement.what}: nothing was known of it"
    by = f" by {judgement.by}" if judgement.by else ""
    at = f" at {judgement.at}" if judgement.at else ""
    if judgement.state != State.CHANGED:
        return f"{judgement.what}: {judgement.state}{by}{at}"
    forms = f"{short(judgement.offered)} was offered, {short(judgement.approved)} was approved"
    return f"{judgement.what}: {judgement.state}: {forms}{by}{at}"


def _moments(label: str, moments: Iterable[Moment]) -> Iterable[tuple[str, str]]:
    return ((label, f"{each.at} {each.what}") for each in moments)


def _policy(policy: object) -> str:
    if isinstance(policy, dict):
        return describe_policy(msgspec.json.encode(policy)) or ""
    return "standard" if policy is None else str(policy)
