"""What a request is for, and whether what is trusted lets it be made."""

import pytest
from support.trust.approvals import CAPABILITIES, INSTRUCTIONS, row, stdio, told_tool, tool_key

from quarterdeck.ledger.events.events import Subject
from quarterdeck.ledger.events.fold import Entry, Item, ItemKey
from quarterdeck.trust.judge.documents import ServerLists, key_of
from quarterdeck.trust.judge.held_messages import MAX_NAME_CHARS
from quarterdeck.trust.judge.offers import Offer, offer_of
from quarterdeck.trust.judge.requests import TASKS, Wish, refused, verdict_on, wish_of
from quarterdeck.trust.judge.verdicts import Verdict
from quarterdeck_protocol.faults import Delivery, ProtocolFault
from quarterdeck_protocol.offers import Listing, Offered, RawRequest

PROMPT = ItemKey(Subject.PROMPT, "plan")
NOTE = ItemKey(Subject.RESOURCE, "note://1")
FILES = ItemKey(Subject.TEMPLATE, "file:///{path}")
LISTINGS = {Subject.PROMPT: Listing.PROMPTS, Subject.RESOURCE: Listing.RESOURCES, Subject.TEMPLATE: Listing.TEMPLATES}
CAN = b'{"tools":{},"prompts":{},"resources":{},"completions":{},"tasks":{}}'


def offer(*listed: ItemKey, can: bytes = CAN, **verdicts: Verdict) -> Offer:
    """A server's offer: all is admitted but what `verdicts` names by the name, or the kind of what it has one of."""
    tools = tuple(told_tool("fs", key.name, "text") for key in listed if key.subject is Subject.TOOL)
    others: dict[Listing, tuple[Offered, ...]] = {}
    for key in listed:
        if (listing := LISTINGS.get(key.subject)) is not None:
            others[listing] = (*others.get(listing, ()), Offered("fs", listing, key.name, b"{}", key.name))
    keys = [*listed, CAPABILITIES, INSTRUCTIONS]
    judged = {key: verdicts.get(key.name or key.subject.value, Verdict.ADMITTED) for key in keys}
    return offer_of(ServerLists(tools, others, capabilities=can), judged)


def code(wish: Wish, found: Offer, entry: Entry | None = None) -> str:
    fault = refused(wish, row(stdio()), found, entry or Entry())
    return fault.code or "" if fault is not None else ""


@pytest.mark.parametrize(
    ("method", "params", "wish"),
    [
        ("tools/call", b'{"name":"a","arguments":{},"task":{}}', Wish(tool_key("a"))),
        ("prompts/get", b'{"name":"plan"}', Wish(PROMPT)),
        ("resources/read", b'{"uri":"note://1"}', Wish(NOTE)),
        ("resources/subscribe", b'{"uri":"note://1"}', Wish(NOTE)),
        ("completion/complete", b'{"ref":{"type":"ref/prompt","name":"plan"}}', Wish(PROMPT, ("completions",))),
        (
            "completion/complete",
            b'{"ref":{"type":"ref/resource","uri":"file:///{path}"}}',
            Wish(FILES, ("completions",)),
        ),
        ("tasks/get", b'{"taskId":"7"}', Wish(None, TASKS)),
        ("tasks/cancel", b"", Wish(None, TASKS)),
    ],
)
def test_a_request_is_for_what_its_params_name(method: str, params: bytes, wish: Wish) -> None:
    """What is held would be asked for under another request's name."""
    assert wish_of(RawRequest(method, params)) == wish


@pytest.mark.parametrize("method", ["sampling/createMessage", "server/discover", "tools/list", "x" * 5_000])
def test_what_nobody_knows_is_not_passed_on(method: str) -> None:
    """A method that means something to a server would reach it, and nobody has judged what."""
    fault = wish_of(RawRequest(method, b"{}"))
    assert isinstance(fault, ProtocolFault)
    assert (fault.code, fault.delivery) == ("not_offered", Delivery.NOT_SENT)
    assert fault.message == f"{method[:MAX_NAME_CHARS]} is nothing that is passed on"


@pytest.mark.parametrize("params", [b"[]", b'{"name":1}', b'{"uri":["a"]}', b'{"ref":7}', b"\xff", b'{"name":"\xff"}'])
def test_params_that_cannot_be_read_are_refused(params: bytes) -> None:
    """A request whose params the server reads in another way than we do would get past what is held."""
    fault = wish_of(RawRequest("prompts/get", params))
    assert isinstance(fault, ProtocolFault)
    assert (fault.code, fault.delivery) == ("bad_arguments", Delivery.NOT_SENT)


@pytest.mark.parametrize(
    ("key", "held", "blocked", "unknown"),
    [
        (tool_key("a"), "tool_held", "tool_blocked", "unknown_tool"),
        (PROMPT, "prompt_held", "prompt_blocked", "unknown_prompt"),
        (NOTE, "resource_held", "resource_blocked", "unknown_resource"),
        (FILES, "resource_held", "resource_blocked", "unknown_resource"),
    ],
)
def test_what_is_held_blocked_or_unknown_is_refused_as_that(
    key: ItemKey, held: str, blocked: str, unknown: str
) -> None:
    """A caller could not tell what a person may approve from what one has refused, or from a typing error."""
    assert verdict_on(key, offer(key), Entry()) is Verdict.ADMITTED
    assert code(Wish(key), offer(key)) == ""
    assert code(Wish(key), offer(key, **{key.name: Verdict.CHANGED})) == held
    assert code(Wish(key), offer(key), Entry(items={key: Item(is_blocked=True)})) == blocked, "though it is listed"
    assert code(Wish(key), offer(can=b'{"tools":{},"prompts":{}}')) == unknown


def test_a_prompt_that_is_mistyped_is_answered_with_the_nearest_one() -> None:
    """A model would try again at random."""
    fault = refused(Wish(ItemKey(Subject.PROMPT, "plam")), row(stdio()), offer(PROMPT), Entry())
    assert fault is not None
    assert fault.message.endswith(": did you mean 'plan'?")


def test_a_uri_that_no_list_has_may_be_read_where_resources_are_approved() -> None:
    """Links that a tool hands out would lead nowhere."""
    link = Wish(ItemKey(Subject.RESOURCE, "job://17/log"))
    assert code(link, offer(NOTE)) == ""
    assert code(link, offer(NOTE, can=b'{"tools":{}}')) == "unknown_resource"
    assert code(link, offer(NOTE, capabilities=Verdict.NEW)) == "unknown_resource"
    assert code(link, offer(NOTE, instructions=Verdict.CHANGED)) == "resource_held"


def test_a_uri_is_held_with_the_only_template_that_fits_it() -> None:
    """Whoever changes a template would have it used while it waits for a person."""
    readme = Wish(ItemKey(Subject.RESOURCE, "file:///README"))
    assert code(readme, offer(FILES)) == ""
    assert code(readme, offer(FILES, **{FILES.name: Verdict.CHANGED})) == "resource_held"
    other = ItemKey(Subject.TEMPLATE, "file:///{+whole}")
    assert code(readme, offer(FILES, other, **{FILES.name: Verdict.CHANGED})) == "", "the other one fits, too"
    assert code(Wish(ItemKey(Subject.RESOURCE, "note://2")), offer(FILES, **{FILES.name: Verdict.CHANGED})) == ""


@pytest.mark.parametrize("uri", ["note:/1", "NOTE://1", "note://\t1", "note://%31", "note://1#a"])
def test_no_other_spelling_reads_what_is_held_or_blocked(uri: str) -> None:
    """What a person blocked would be read by who writes it in another way."""
    wish, entry = Wish(ItemKey(Subject.RESOURCE, uri)), Entry(items={NOTE: Item(is_blocked=True)})
    any_note = ItemKey(Subject.TEMPLATE, "{+any}")
    assert code(wish, offer(NOTE, any_note), entry) == "resource_blocked", "though a template fits it"
    assert code(wish, offer(NOTE, **{NOTE.name: Verdict.CHANGED})) == "resource_held"


def test_a_completion_names_a_template_or_a_resource_by_one_member() -> None:
    """Completions of a resource's URI would be refused, or those of a held one given."""
    by_uri = Wish(ItemKey(Subject.TEMPLATE, NOTE.name), ("completions",))
    assert code(by_uri, offer(NOTE)) == ""
    assert code(by_uri, offer(NOTE, **{NOTE.name: Verdict.NEW})) == "resource_held"
    readme = ItemKey(Subject.RESOURCE, "file:///README")
    found = offer(readme, FILES, **{FILES.name: Verdict.NEW})
    assert code(Wish(ItemKey(Subject.TEMPLATE, readme.name)), found) == "", "a held template that fits it is another"


def test_a_completion_needs_its_capability_beside_what_it_is_of() -> None:
    """A server would be asked for what nobody approved that it does."""
    wish = Wish(PROMPT, ("completions",))
    assert code(wish, offer(PROMPT)) == ""
    assert code(wish, offer(PROMPT, can=b'{"prompts":{}}')) == "capability_held"
    assert code(wish, offer(PROMPT, plan=Verdict.NEW)) == "prompt_held"


@pytest.mark.parametrize("can", [b'{"tasks":{}}', b'{"extensions":{"io.modelcontextprotocol/tasks":{}}}'])
def test_tasks_need_either_name_of_their_capability(can: bytes) -> None:
    """Tasks of one era would be out of reach."""
    wish = Wish(None, TASKS)
    assert code(wish, offer(can=can)) == ""
    assert code(wish, offer(can=b'{"tools":{}}')) == "capability_held"
    assert code(wish, offer(can=can, instructions=Verdict.CHANGED)) == "capability_held"


def test_the_keys_are_those_of_the_lists() -> None:
    """A request would be judged by another name than the list it is in."""
    assert key_of(Offered("fs", Listing.TEMPLATES, FILES.name, b"{}", "else")) == FILES
