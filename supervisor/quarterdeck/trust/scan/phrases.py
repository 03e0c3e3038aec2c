"""The phrases by which definitions try to rule the model instead of describing a tool.  Pure.

Written after what was published: the experiments of Invariant Labs (April 2025: direct poisoning, shadowing, the
WhatsApp takeover), CyberArk's full-schema poisoning, HiddenLayer's parameter names, and the rules of open scanners.
The words are ours.  Each phrase keeps clear of what honest servers write: tests hold both.
"""

from typing import Final

from . import languages
from .words import Phrasebook, phrase

_CALL: Final = "call|calling|use|using|invoke|invoking|run|running|execute|executing|consult|consulting"
_CALLED: Final = "called|used|invoked|run|executed|triggered"
_OTHER: Final = "other|another|others"
_FOREIGN: Final = "other|another|builtin|built|native|original|default"
_EVERY: Final = "any|every|each|all|anything|everything"
_RULES: Final = "instruction|instructions|prompt|prompts|guidelines|directives|constraints|restrictions|rules|context"
_EARLIER: Final = "previous|prior|above|earlier|preceding|foregoing|your"
_TELL: Final = (
    "tell|telling|mention|mentioning|inform|informing|notify|notifying|reveal|revealing|alert|alerting|disclose"
)
_PEOPLE: Final = "user|users|human|humans|operator|anyone|anybody"
_ASSISTANT: Final = "ai|llm|model|assistant|agent"
_READ: Final = "read|reading|open|cat|load|fetch|retrieve|get|access|dump|extract|collect|gather|find|locate|steal|copy"
_SEND: Final = (
    "send|sending|pass|passing|include|including|provide|append|attach|supply|insert|forward|transmit|upload|embed|"
    "exfiltrate|leak"
)
_CONTENT: Final = "content|contents"
_TALKED: Final = "conversation|conversations|chat|dialogue|@talk"
_AGREED: Final = (
    "agreed|approved|consented|authorized|authorised|confirmed|permitted|accepted|allowed|okayed|granted|signed"
)
_CONSENT: Final = "consent|permission|approval|authorization|confirmation|agreement"

PHRASES: Final[dict[str, tuple[str, ...]]] = {
    "instructs-model": (
        # Away with what it was told before.
        f"ignore|disregard|forget|bypass|discard|neglect .. {_EARLIER} .. {_RULES}",
        f"ignore|disregard|forget|bypass .. all|any .. other|safety|security|system .. {_RULES}",
        "ignore|disregard|forget all instructions|rules|guidelines|directives",
        "ignore|disregard|forget|override .. @talk",
        f"override|overrides|overriding|supersede|supersedes .. {_EARLIER} .. {_RULES}",
        "not|don't|never .. follow|obey .. previous|prior|earlier|original|user's .. instructions|rules|requests",
        # A new role, a higher voice.
        "from now on .. you",
        "you are now in|a|an|the|acting|operating|allowed|free",
        "important|critical|urgent|mandatory|secret system instruction|instructions|note|override|directive|notice",
        f"new|updated|secret|hidden instructions for you|the .. {_ASSISTANT}",
        f"instructions|instruction|message|note|notice|reminder to the {_ASSISTANT}",
        f"note|notice|reminder for the {_ASSISTANT}",
        "system override|directive",
        "developer|god|jailbreak|dan|admin mode enabled|activated|on",
        "this|these instruction|instructions|directive|directives override|overrides|supersede|supersedes|take|takes",
        "highest|top|absolute priority .. over .. any|all|other|others",
        # Whatever else is done, this first.
        f"before|prior .. {_CALL} .. any|all|each|every .. tool|tools",
        "before|after answering|responding|replying .. any|every|user|user's|users|to",
        f"before|after .. any|every|each .. {_OTHER} tool|tools",
        f"must|shall always {_CALL}",
        f"always|must|immediately {_CALL} this|the tool|function|command first|immediately|prior",
        f"always|must|required|mandatory|essential .. {_CALL} .. this|the .. tool|function .. before|for .. {_EVERY}",
        f"required|mandatory|essential to {_CALL} this|the .. tool|function .. first|before|prior",
        "regardless of .. user|user's .. asks|asked|request|requests|wants|says|instructions|query|question",
        "include|append|add|insert .. every|each|all .. of your .. response|responses|reply|replies|answers|messages",
        "otherwise|or|else .. this|the tool|system|application will|won't|cannot .. work|crash",
        "application|system will crash",
    ),
    "conceals-from-user": (
        f"don't|never|not|without|avoid {_TELL} .. {_PEOPLE}|them",
        f"not under any circumstances .. {_TELL} .. {_PEOPLE}",
        f"never|not ever|even|explicitly|directly {_TELL} .. {_PEOPLE}",
        f"don't|not|never show|display .. {_PEOPLE}",
        "tell|telling|mention|inform|notify .. nobody|one|noone",
        f"don't|not|never {_TELL} .. that|this|it .. you|tool|call|file",
        f"not|never|without|avoid let|letting|making .. {_PEOPLE} .. know|notice|see|aware|suspect",
        f"without .. {_PEOPLE}|user's knowing|knowledge|noticing|awareness|realizing",
        f"hide|hiding|conceal|concealing|keep|keeping .. this|it|them|that|secret|hidden .. from .. {_PEOPLE}",
        f"silently|secretly|covertly|discreetly .. {_SEND}|{_READ}|bcc|call|execute|sends|forwards|uploads|collects",
        f"{_PEOPLE} must|should|need|needs not .. know|see|notice|be",
        f"not|don't|never|needn't ask .. {_PEOPLE} .. permission|confirmation|approval|consent",
    ),
    "asks-secrets": (
        f"{_READ}|{_SEND}|{_CONTENT} ... @file",
        f"@file .. {_CONTENT}",
        f"{_SEND} .. {_CONTENT} .. @dotfile",
        f"{_READ} ... @dotfile .. and .. {_SEND}",
        f"{_READ}|{_SEND}|enter|paste|share|give|type .. user's|users|your|their|victim's .. @secret|@env",
        f"{_READ} .. @secret .. of|from|on .. user|host|machine|computer",
        "ask|asking|prompt|prompting|request .. user|users|them .. @secret",
        f"{_READ} ... and .. {_SEND} .. its|their {_CONTENT} .. as|in|to|via",
    ),
    "asks-context": (
        f"{_SEND}|print|output|repeat|summarize|record .. @talk",
        f"{_SEND} .. everything|all .. user|you .. said|told|wrote|asked|know",
        "@talk .. as|in|into|via .. parameter|argument|field",
    ),
    "claims-consent": (
        f"{_PEOPLE}|owner|admin|administrator .. already|previously|implicitly|beforehand .. {_AGREED}",
        f"{_PEOPLE}|owner|admin|administrator .. already|previously .. {_CONSENT}",
        f"{_CONSENT} .. already|previously|implicitly .. {_AGREED}|given|obtained|received|provided",
        f"pre approved|authorized|authorised|consented by .. {_PEOPLE}|owner|admin|administrator",
        f"already .. {_CONSENT} .. of|from|by .. {_PEOPLE}",
    ),
    "shadows-tool": (
        f"when|whenever|if|once|after|before|while|every|each .. {_OTHER} .. tool|tools|function .. {_CALLED}",
        "side effect|effects on ... tool|tools",
        f"instead of .. any|all|every|{_FOREIGN} .. tool|tools|function|functions",
        f"this|it|tool replaces|supersedes|overrides|shadows .. all|any|{_FOREIGN} .. tool|tools",
        f"never|not|don't|stop {_CALL} .. any|{_FOREIGN} .. tool|tools",
        "intercept|intercepts|hijack|reroute|redirect|redirects .. calls|requests|output|results .. tool|tools",
        "tool|tools must|should|shall send|forward|copy|bcc|redirect",
        "change|replace|modify|set|rewrite .. recipient|recipients .. to|with",
        "pretend|claim|masquerade .. to|as .. be|the .. official|trusted|verified|legitimate .. tool|server",
    ),
}
"""By rule: see `words` for how a phrase is written."""

PHRASEBOOK: Final = Phrasebook(
    (rule, phrase(text)) for book in (PHRASES, languages.PHRASES) for rule, texts in book.items() for text in texts
)

ASKING: Final[dict[str, tuple[str, ...]]] = {
    "asks-context": (
        f"full|entire|whole|complete|all|current|recent|previous|prior|past .. {_TALKED}",
        f"{_TALKED} so far",
        f"{_TALKED} up|until .. now|point",
        f"{_TALKED} with|between .. user|assistant|you",
        "your|model's|assistant's|agent's .. system|hidden|internal .. prompt|instructions|message|reasoning|thoughts",
        "your|current|active|full|exact .. @talk",
        "everything|anything|all .. user|you .. said|told|wrote|asked|know|knows",
        "names|list|descriptions|schemas of .. all|other|available|your .. tools",
    ),
    "asks-secrets": (
        f"{_CONTENT} of .. @file|@dotfile",
        f"{_CONTENT} of .. user's|users|your|local|private|all|any|every .. files|documents|home",
        "value|values of .. user's|users|your|all .. @env",
    ),
}
"""What the description of a parameter asks for without a word of asking: whoever describes one expects it."""

ASKBOOK: Final = Phrasebook((rule, phrase(text)) for rule, texts in ASKING.items() for text in texts)
