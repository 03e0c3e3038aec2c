"""The phrases by which a definition tries to rule the model, and the search for them in a text.  Pure.

A phrase is written as its words, with gaps:

    ignore|disregard .. previous|prior .. instructions|rules

`|` separates the choices for one word, `..` stands for up to three words of any kind, `...` for up to ten.  No phrase
reaches across the end of a sentence.  Case, line breaks, punctuation and markup do not count.  A few things that are
said in many ways are one word each: `@file` (where only secrets are kept), `@dotfile` (where settings are, and secrets
among them), `@secret` (passwords, keys), `@env` (environment variables), `@talk` (the conversation, or what the model
was told).  The search walks over the words, in time linear in the text, without a regular expression.

Written after what was published: the experiments of Invariant Labs (April 2025: direct poisoning, shadowing, the
WhatsApp takeover), CyberArk's full-schema poisoning, HiddenLayer's parameter names, and the rules of open scanners.
The words are ours.  Each phrase avoids what honest servers write: tests hold both.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from .disguises import plain

_GAPS: Final = {"..": 3, "...": 10}

_START: Final = r"(?<![^\W_])"
_STOP: Final = r"(?![^\W_])"
"""Where a word starts and ends: in names, words stand between underscores."""

_FILE: Final = (
    r"\.ssh|id_(?:rsa|dsa|ecdsa|ed25519)|\.aws/(?:credentials|config)|mcp\.json"
    r"|claude_desktop_config|/etc/(?:passwd|shadow)|\.(?:netrc|pgpass|git-credentials)|wallet\.dat"
    r"|\.(?:bash|zsh)_history|\.gnupg|login data|cookies\.sqlite|ssh[\s_-]{1,12}id[\s_-]{1,12}rsa|authorized_keys"
)
_DOTFILE: Final = r"\.env|\.(?:npmrc|pypirc)|\.kube/config|\.docker/config\.json|\.config/gcloud"
_CREDENTIAL: Final = (
    r"(?:api|private|ssh|secret|access|auth|session|owner|signing|encryption)[\s_-]{1,12}(?:keys?|tokens?)"
    r"|api_?keys?|pass(?:word|phrase|code)s?|credentials?|(?:seed|recovery|mnemonic)[\s_-]{1,12}phrases?"
    r"|session[\s_-]{1,12}cookies?|credit[\s_-]{1,12}card"
)
_ENV: Final = r"env(?:ironment)?[\s_-]{1,12}(?:variables?|vars?)"
_TALK: Final = (
    r"(?:conversation|chat|dialogue|tool[\s_-]{1,12}call)[\s_-]{1,12}(?:history|log|context)"
    r"|(?:entire|whole|full|complete)[\s_-]{1,12}(?:conversation|chat|dialogue)|system[\s_-]{1,12}(?:prompt|message)s?"
    r"|chain[\s_-]{1,12}of[\s_-]{1,12}thought|previous[\s_-]{1,12}(?:messages|conversations?)"
)
_TOKEN: Final = re.compile(
    rf"{_START}(?:(?P<file>{_FILE})|(?P<dotfile>{_DOTFILE})|(?P<secret>{_CREDENTIAL})|(?P<env>{_ENV})|(?P<talk>{_TALK}))"
    rf"{_STOP}"
    r"|(?P<word>[^\W_]+(?:'[^\W_]{1,3}\b)?)|(?P<end>[.!?](?=\s|$)|\n[ \t\r]*\n)",
    re.IGNORECASE,
)

_END: Final = ""


class Word(NamedTuple):
    """One word of a text: lower case, empty for the end of a sentence; and where it stands."""

    text: str
    start: int
    end: int


class Phrase(NamedTuple):
    """What to look for: choices of a word, each after at most so many words of whatever kind."""

    first: frozenset[str]
    rest: tuple[tuple[int, frozenset[str]], ...]


def words_of(text: str) -> tuple[str, list[Word]]:
    """`text` without disguises, and its words."""
    said = plain(text)
    return said, [_word(found) for found in _TOKEN.finditer(said)]


def phrase(text: str) -> Phrase:
    """The phrase that `text` writes down."""
    steps: list[tuple[int, frozenset[str]]] = []
    gap = 0
    for part in text.split():
        if part in _GAPS:
            gap = _GAPS[part]
        else:
            steps.append((gap, frozenset(part.split("|"))))
            gap = 0
    return Phrase(steps[0][1], tuple(steps[1:]))


class Phrasebook:
    """Phrases of many rules, found in one walk over a text.

    Args:
        phrases: what to look for, and the id of the rule that looks for it.
    """

    def __init__(self, phrases: Iterable[tuple[str, Phrase]]) -> None:
        self._by_first: dict[str, list[tuple[str, Phrase]]] = {}
        for rule, each in phrases:
            for word in each.first:
                self._by_first.setdefault(word, []).append((rule, each))

    def find(self, words: list[Word]) -> Iterator[tuple[str, int, int]]:
        """The rules that match, each once, and where: from the start of a phrase to its end."""
        struck: set[str] = set()
        for place, word in enumerate(words):
            for rule, each in self._by_first.get(word.text, ()):
                if rule not in struck and (last := _match(each, words, place)) is not None:
                    struck.add(rule)
                    yield rule, word.start, words[last].end


def _word(found: re.Match[str]) -> Word:
    kind = found.lastgroup
    text = found[0].lower() if kind == "word" else _END if kind == "end" else f"@{kind}"
    return Word(text, found.start(), found.end())


def _match(each: Phrase, words: list[Word], place: int) -> int | None:
    """The place of the phrase's last word when it starts at `place`."""
    places = {place}
    for gap, choices in each.rest:
        reached: set[int] = set()
        for start in places:
            for offset in range(start + 1, min(start + gap + 2, len(words))):
                text = words[offset].text
                if text == _END:
                    break
                if text in choices:
                    reached.add(offset)
        if not reached:
            return None
        places = reached
    return min(places)


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
"""By rule, in English; each in the notation that the module describes."""

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

_DE_USER: Final = "nutzer|nutzern|nutzerin|benutzer|benutzern|anwender|anwenderin|user"
_ES_LOOT: Final = "contraseña|contraseñas|conversación|claves|credenciales|historial|contenido"
_PT_LOOT: Final = "senha|senhas|conversa|credenciais|chaves|histórico|conteúdo"

FOREIGN_PHRASES: Final[dict[str, tuple[str, ...]]] = {
    "instructs-model": (
        # German, French, Spanish, Portuguese, Italian, Russian.
        "ignoriere|ignorieren|vergiss|vergessen|missachte|missachten .. anweisungen|instruktionen|regeln|vorgaben",
        "ignore|ignorez|ignorer|oublie|oubliez .. toutes|les|tes|vos .. instructions|consignes|directives|règles",
        "ignore|ignorez|oublie|oubliez .. instructions|consignes .. précédentes|antérieures",
        "ignora|ignorar|ignore|olvida|olvide|omite .. todas|las|tus|sus .. instrucciones|indicaciones|órdenes",
        "ignora|olvida|ignore .. instrucciones|instruções .. anteriores|previas",
        "ignore|ignora|ignorar|esqueça|esquece|desconsidere .. as|suas|todas .. instruções|orientações|regras",
        "ignora|ignorare|ignorate|dimentica|dimenticare|dimenticate .. istruzioni|indicazioni|regole|direttive",
        "игнорируй|игнорируйте|игнорировать|забудь|забудьте|отбрось .. инструкции|инструкций|указания|правила",
    ),
    "conceals-from-user": (
        f"sag|sage|sagen|verrate|verraten|erzähle|erzählen|zeige|teile|melde|informiere .. {_DE_USER} .. nicht|nichts",
        f"erwähne|erwähnen|verrate|sage|zeige .. nicht|nichts|niemals .. {_DE_USER}",
        f"ohne .. {_DE_USER} .. informieren|fragen|wissen|benachrichtigen|sagen",
        "ne .. dis|dites|dire|informe|informez|informer|mentionne|révèle|révélez|montre .. utilisateur|usager",
        "sans .. utilisateur|usager .. sache|informer|remarque|prévenir|voie",
        "insu .. utilisateur|usager",
        "no .. digas|diga|decir|informes|informe|menciones|mencione|muestres|reveles|revele .. usuario|usuaria|nadie",
        "sin .. usuario|usuaria .. sepa|entere|note|saberlo|vea",
        "não|nao .. diga|dizer|conte|informe|mencione|revele|mostre .. usuário|usuario|utilizador|ninguém",
        "sem .. usuário|utilizador .. saiba|saber|perceba|perceber|veja",
        "non .. dire|dirlo|dica|informare|informi|menzionare|menzioni|rivelare|riveli|mostrare .. utente|nessuno",
        "senza .. utente .. sappia|saperlo|informare|accorga",
        # A capital `Не` looks like `He`, and is read as that.
        "не|he .. говори|говорите|сообщай|сообщайте|рассказывай|упоминай|показывай .. пользователю|никому",
        "тайно|втайне|скрытно|незаметно .. пользователя",
    ),
    "asks-secrets": (
        "sende|senden|schicke|schicken|übermittle|übermitteln|kopiere .. passwort|passwörter|zugangsdaten|schlüssel",
        "passwort|passwörter|zugangsdaten .. an .. senden|schicken|übermitteln",
        "envoie|envoyez|envoyer|transmets|transmettez .. mot|mots|clé|clés|identifiants|secrets .. passe|à|vers|api",
        f"envía|envíe|enviar|manda|mande|reenvía|sube .. {_ES_LOOT} .. a|al",
        f"envie|envia|enviar|mande|transmita .. {_PT_LOOT} .. para|a|ao",
        "invia|inviare|inviate|manda|trasmetti .. password|credenziali|chiavi|conversazione|cronologia .. a|al|all",
        "отправь|отправьте|отправляй|перешли|передай|передайте .. пароль|пароли|ключи|ключ|переписку|содержимое",
    ),
    "asks-context": (
        "sende|schicke|übermittle|füge .. gespräch|gesprächsverlauf|unterhaltung|chatverlauf|systemprompt",
        "envoie|envoyez|transmets|transmettez|inclus|incluez .. conversation|historique|discussion .. à|vers|dans",
    ),
}
"""The same in German, French, Spanish, Portuguese, Italian and Russian."""

_NEAR: Final = r"[^。！？.!?\n]{0,14}"
_ZH_USER: Final = "(?:用户|用戶|使用者|任何人)"
_ZH_LOOT: Final = "(?:密码|密碼|密钥|密鑰|凭据|憑證|对话|對話|聊天记录|聊天記錄|文件内容|系统提示|系統提示|提示词)"
_JA_USER: Final = "(?:ユーザー|ユーザ|利用者|使用者)"
_JA_LOOT: Final = "(?:パスワード|秘密鍵|会話|認証情報|ファイルの内容|API ?キー|システムプロンプト)"
_KO_LOOT: Final = "(?:비밀번호|암호|대화|자격 ?증명|API ?키|시스템 ?프롬프트|파일 ?내용)"

FOREIGN_PATTERNS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    (
        "instructs-model",
        re.compile(
            "(?:忽略|无视|無視|忘记|忘記|忘掉)[^。！？\n]{0,16}(?:指令|指示|规则|規則|提示|说明|說明)"
            f"|(?:指示|命令|ルール|プロンプト){_NEAR}(?:無視|忘れ|破棄)"
            f"|(?:지시|명령|지침|규칙|프롬프트){_NEAR}(?:무시|잊어)"
        ),
    ),
    (
        "conceals-from-user",
        re.compile(
            f"(?:不要|别|別|请勿|請勿|不得|切勿){_NEAR}(?:告诉|告訴|告知|通知|透露|提及|提醒|显示){_NEAR}{_ZH_USER}"
            f"|(?:不要|别|別|请勿|請勿|不得|切勿)(?:让|讓|向|对|對){_ZH_USER}"
            f"|(?:瞒着|瞞著|隐瞒|隱瞞){_NEAR}{_ZH_USER}"
            f"|{_JA_USER}(?:に|には|へ){_NEAR}(?:言わない|伝えない|知らせない|教えない|報告しない|話さない|見せない|内緒|秘密に)"
            f"|(?:사용자|유저|이용자)(?:에게|한테|가){_NEAR}(?:말하지|알리지|보여주지|언급하지|밝히지|모르게)"
        ),
    ),
    (
        "asks-secrets",
        re.compile(
            f"(?:发送|發送|上传|上傳|转发|轉發|传送|傳送){_NEAR}{_ZH_LOOT}|{_ZH_LOOT}{_NEAR}(?:发送|發送|上传|上傳|转发|轉發|发给)"
            f"|{_JA_LOOT}{_NEAR}(?:送信|転送|アップロード|送って|送る)"
            f"|{_KO_LOOT}{_NEAR}(?:전송|보내|업로드|전달)"
        ),
    ),
)
"""By rule: what is looked for in Chinese, Japanese and Korean, which do not part their words."""

PHRASEBOOK: Final = Phrasebook(
    (rule, phrase(text)) for book in (PHRASES, FOREIGN_PHRASES) for rule, texts in book.items() for text in texts
)

ASKBOOK: Final = Phrasebook((rule, phrase(text)) for rule, texts in ASKING.items() for text in texts)
