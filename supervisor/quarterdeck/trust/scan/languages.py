"""What `phrases` looks for in English, in other languages: forget what you were told, tell the user nothing, send it.

Pure.  Languages that part their words have phrases; those that do not have patterns, which reach no further than a
sentence.
"""

import re
from typing import Final

_DE_USER: Final = "nutzer|nutzern|nutzerin|benutzer|benutzern|anwender|anwenderin|user"
_ES_LOOT: Final = "contraseña|contraseñas|conversación|claves|credenciales|historial|contenido"
_PT_LOOT: Final = "senha|senhas|conversa|credenciais|chaves|histórico|conteúdo"

PHRASES: Final[dict[str, tuple[str, ...]]] = {
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
"""By rule; see `words` for how a phrase is written."""

_NEAR: Final = r"[^。！？.!?\n]{0,14}"
_ZH_USER: Final = "(?:用户|用戶|使用者|任何人)"
_ZH_LOOT: Final = "(?:密码|密碼|密钥|密鑰|凭据|憑證|对话|對話|聊天记录|聊天記錄|文件内容|系统提示|系統提示|提示词)"
_JA_USER: Final = "(?:ユーザー|ユーザ|利用者|使用者)"
_JA_LOOT: Final = "(?:パスワード|秘密鍵|会話|認証情報|ファイルの内容|API ?キー|システムプロンプト)"
_KO_LOOT: Final = "(?:비밀번호|암호|대화|자격 ?증명|API ?키|시스템 ?프롬프트|파일 ?내용)"

PATTERNS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
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
"""By rule, for Chinese, Japanese and Korean."""
