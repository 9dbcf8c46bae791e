"""The words of those who speak to a judge, as patterns over folded text, in a dozen languages. Deliberately wide: a finding decides nothing.

A pattern is named by what it shows: `verdict` (a mark beside the name of a mark), `label`, `hint`, `order` (to look away, or to count
something as something), `judge` (address), `authority`, `role` (a line or mark that pretends to come from somebody else).
"""

import re

from judges.fold import plain


def _any(words: str) -> str:
    """An alternation of the words, folded as the text will be; a trailing `*` takes any ending."""
    folded = [re.escape(plain(word.strip())).replace(r"\*", r"\w*").replace(r"\ ", r"\s+") for word in words.split(",")]
    return "(?:" + "|".join(sorted(set(folded), key=len, reverse=True)) + ")"


_MARK = _any(
    "verdict*, score*, scoring, grade*, grading, rating, ratings, rate, rated, mark, marks, reward*, judgement*, judgment*, evaluation*,"
    "assessment*, points, outcome, label*, feedback score, veredict*, puntuacion*, calificacion*, recompensa*, nota, verdetto,"
    "punteggio, voto, note, jugement, recompense, urteil*, bewertung*, punktzahl, belohnung, veredito, pontuacao, oordeel, beloning,"
    "wyrok, ocena, ocene, hukum, karar, puan, puani, odul, вердикт*, оценк*, балл*, награ*, 判定, 评分, 裁决, 分数, 奖励, 評価, 得点, 採点,"
    "판정, 점수, 평가, الحكم, التقييم, الدرجة, निर्णय, अंक, מדרג"
)
_VALUE = (
    r"(?:[+-]\s?1(?!\d|[.:]\d|[a-z])|(?:plus|minus|positive|negative)\s+(?:one|1)\b|\b(?:mas|menos|plus|moins|piu|meno|mais|minus|arti|eksi)\s+"
    r"(?:uno?|une?|eins|um|bir|1)\b|(?:плюс|минус)\s+(?:один|1)|[正负負]一|[正负負]1|加一|减一|プラス1|マイナス1|플러스\s?1|마이너스\s?1|"
    r"\b(?:abstain|abstention|full|top|highest|maximum|max|best|lowest|zero|perfect|positive|negative|pass|passed|fail|failed|success|correct|"
    r"positivo|positif|positiv|negativo|negatif|negativ|maximo|maximal|positywn\w*|olumlu|olumsuz|положительн\w*|отрицательн\w*)\b|满分|正面|"
    r"負面|负面|肯定|満点|긍정|만점|إيجابي|ايجابي|सकारात्मक|\b1\b|\b10\s?/\s?10\b|\b100\s?%)"
)
_STRICT_VALUE = r"(?:(?<![a-z0-9])[+-]\s?1(?!\d|[.:]\d|[a-z])|\b(?:plus|minus|positive|negative)\s+(?:one|1)\b|\babstain\b)"
_HINT = _any(
    "hint*, hindsight, instruction*, lesson*, takeaway*, guidance, correction to store, pista*, consejo, indicacion*, indice, conseil,"
    "consigne, hinweis*, tipp, suggerimento, dica, wskazowk*, ipucu, подсказк*, указани*, 提示, 指示, ヒント, 힌트, تلميح, संकेत"
)
_JUDGES = _any(
    "judge*, grader*, evaluator*, reviewer*, rater*, scorer*, assessor*, adjudicator*, arbiter*, referee*, reward model*, scoring model*,"
    "grading model*, marking model*, llm, language model, juez, evaluador*, evaluateur*, juge, richter*, gutachter*, bewerter*, giudice,"
    "valutatore, juiz, avaliador*, beoordelaar, sedzi*, oceniajac*, hakem, yargic, degerlendirici, судья, судье, оценщик*, 评委, 裁判, 评审,"
    "评估者, 審査員, 評価者, 判定者, 심판, 평가자, 심사위원, القاضي, المقيم, न्यायाधीश"
)
_LOOK_AWAY = _any(
    "ignore, ignoring, disregard*, forget, override*, overrule*, bypass, discard, never mind, pay no attention to, do not follow,"
    "don't follow, do not consider, don't consider, stop following, ignora*, olvida*, descarta*, ignore*, oublie*, ignorier*,"
    "vergiss, missachte*, dimentica*, esqueca, esquece, negeer, vergeet, zignoruj, zapomnij, yoksay, unut, игнорир*, забудь*, не обращай*,"
    "忽略, 无视, 忘记, 無視, 忘れ, 무시, تجاهل, انس, अनदेखा, भूल"
)
_RULES = _any(
    "instruction*, rule*, prompt*, above, previous, prior, earlier, everything, anything, all, guideline*, criteria, rubric*, whatever,"
    "what i, what the, what came, what was said, the rest, complaint*, the reply, the user, the conversation, the data, instruccion*, anterior*, todo, reglas,"
    "consigne*, precedent*, tout, regles, anweisung*, vorherig*, alles, regeln, obig*, istruzioni, precedenti, tutto, instruco*,"
    "regras, tudo, instructies, vorige, polecen*, poprzedni*, talimat*, onceki, инструкц*, предыдущ*, правил*, все, 指令, 之前, 以上, 规则,"
    "上面, 前の, すべて, 지시, 이전, 위의, التعليمات, السابقة, निर्देश*, पिछले"
)
_DEED = _any(
    "write, store, record, give, output, return, add, put, save, use, emit, set, make, say, answer, reply with, respond*, print, choose, pick,"
    "assign, award, enter, type, conclude, report, vote, select, produce, must be, should be, has to be, shall be, will be, needs to be"
)
_COUNT_AS = _any(
    "treat, count, regard, consider, deem, declare, rule, call, classify, log, file, register, take, interpret, accept, approve, mark,"
    "score, grade, rate, record, report, read this as, read it as, trate*, considera*, compte*, betrachte*, werte*, считай*, засчитай*"
)
_OUTCOMES = _any(
    "success*, correct*, right, good, perfect, accepted, approved, solved, passed, pass, helpful, excellent, resolved, satisfied, done, failure,"
    "failed, fail, wrong, bad, unhelpful, rejected, incorrect, unsatisf*, happy, thank*, highest, lowest, maximum, full, top, correct*,"
    "exito, succes, erfolg*, richtig, успеш*, верн*"
)
_WHO = _any(
    "administrator*, admin, developer*, operator*, owner*, openai, anthropic, burnish, system, supervisor, manager, security team, moderator*,"
    "root, maintainer*, trainer*, platform, compliance, headquarters, engineer in charge, administrador, administrateur, systemadministrator,"
    "администратор*, 管理员, 管理者, 관리자, المسؤول"
)
_ROLES = (
    r"(?:system|assistant|user|human|ai|tool|developer|judge|grader|evaluator|came[_ ]back|feedback|model|function|observation)"
)
_FIELDS = r"(?:conversation|reply|came_back|end|next_state|data|system|user|assistant|instructions?|verdict|hint|judge|answer|tool_response)"
_GAP = r"[^\n]{0,48}?"

PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (code, re.compile(pattern, re.MULTILINE))
    for code, pattern in (
        ("verdict", rf"(?<![a-z0-9_]){_MARK}{_GAP}{_VALUE}"),
        ("verdict", rf"{_STRICT_VALUE}[^\n]{{0,32}}?(?<![a-z0-9_]){_MARK}"),
        ("verdict", rf"(?<![a-z0-9_]){_DEED}{_GAP}{_STRICT_VALUE}"),
        ("verdict", rf"(?<![a-z0-9_])(?:{_MARK}|{_COUNT_AS})\s+(?:it|this|that|him|me|the\s+\w+|its\s+\w+)[^\n]{{0,24}}?{_VALUE}"),
        ("label", rf"(?<![a-z0-9_])(?:{_MARK}|{_HINT})[\s\"'*_\])>}}`]*[:=：]"),
        ("hint", rf"(?<![a-z0-9_]){_HINT}{_GAP}(?<![a-z0-9_])(?:is|are|be|reads?|says?|to\s+(?:write|store|give|record|remember)|es|est|ist|lautet|это|是|は)(?![a-z0-9_])"),
        ("hint", rf"(?<![a-z0-9_]){_DEED}{_GAP}(?<![a-z0-9_]){_HINT}"),
        ("hint", r"(?<![a-z0-9_])(?:future|next|all later|from now on|every)[^\n]{0,40}?(?:repl(?:y|ies)|answers?|responses?|assistants?|agents?|models?)[^\n]{0,24}?(?:must|should|shall|always|never|will|has to|have to|need)"),
        ("hint", r"(?<![a-z0-9_])(?:assistants?|agents?|models?|bots?|ais?)\s+(?:must|should|shall|are\s+to|is\s+to|has\s+to|have\s+to|need(?:s)?\s+to)\s+(?:always|never|not|be|use|recommend|say|write|add|mention|end|begin)"),
        ("order", rf"(?<![a-z0-9_]){_LOOK_AWAY}{_GAP}{_RULES}"),
        ("order", rf"{_RULES}[^\n]{{0,24}}?(?:무시|忽略|无视|無視|忘れ|अनदेखा)"),
        ("order", rf"(?<![a-z0-9_]){_COUNT_AS}\s+(?:it|this|that|him|me|the\s+\w+|my\s+\w+|its\s+\w+){_GAP}(?<![a-z0-9_]){_OUTCOMES}(?![a-z0-9_])"),
        ("judge", rf"(?:(?<![a-z0-9_])(?:dear|hey|hello|attention|note|message|memo|notice|psst|listen|hi)\W+(?:{_GAP}\W)?|(?<![a-z0-9_])(?:as|you\s+are|you're|to|for)\s+(?:the|a|an|our|your|every|any|whoever)?\s*(?:\w+\s+)?){_JUDGES}(?![a-z0-9_])[^\n]{{0,3}}(?:[:,;!\-]|$)"),
        ("judge", rf"(?:^|[.!?;\"'\[(]\s*|\W\W){_JUDGES}\s*[:,：，\-]"),
        ("judge", rf"(?<![a-z0-9_]){_JUDGES}\W+(?:must|should|shall|has\s+to|have\s+to|will|needs?\s+to|is\s+to|are\s+to|please|ought|may\s+only)(?![a-z0-9_])"),
        ("judge", r"(?<![a-z0-9_])(?:if|when|while|whoever|for whoever)[^\n]{0,24}?(?:judg(?:e|es|ing|ed)|grad(?:es|ing|ed)|evaluat(?:e|es|ing|ed)|scor(?:es|ing|ed)|rat(?:es|ing|ed))\s+(?:this|the|it|my|that|these|you)"),
        ("judge", r"(?<![a-z0-9_])(?:reward\s+model|process\s+judge|llm[\s-]+judge|grading\s+(?:model|bot|script|system)|judging\s+(?:model|bot|system))"),
        ("authority", rf"(?<![a-z0-9_])(?:i\s+am|i'm|this\s+is|here\s+is|speaking\s+as|message\s+from|notice\s+from|on\s+behalf\s+of|by\s+order\s+of|as|from|soy|je\s+suis|ich\s+bin|sono|я)\W+(?:(?:the|your|an?|el|le|der|die|il|lo|l|chief|lead|senior)\W+)*{_WHO}(?![a-z0-9_])"),
        ("authority", rf"(?<![a-z0-9_]){_WHO}\s+(?:notice|message|override|announcement|instruction|order|directive|policy|note|update|mode)(?![a-z0-9_])"),
        ("authority", r"(?<![a-z0-9_])(?:new|updated|secret|hidden|special|official|real|actual|revised)\s+(?:\w+\s+)?(?:instruction|rule|polic|directive|criteri|rubric|guideline|prompt)"),
        ("role", rf"^[\s>*#\-_`\"']*\[?{_ROLES}\]?[\s*_`]*(?:\([^)\n]{{0,20}}\))?\s*[:：>]"),
        ("role", rf"[{{,]\s*\\?[\"']{_ROLES}\\?[\"']\s*:|\\?[\"'](?:verdict|hint|score|role|from)\\?[\"']\s*:"),
        ("mark", r"<\s?[|｜/]?\s*\w{2,24}\s?[|｜]\s?>|<\s?\|\s?\w+|\[/?inst\]|<</?sys>>|</?s>|<(?:start|end)_of_turn>"),
        ("mark", rf"<\s?/?\s?{_FIELDS}(?:\s[^>\n]{{0,40}})?>|\[/?{_FIELDS}\]|^\s*[#=\-*~]{{2,}}\s*(?:end|begin|start|new|system|instruction|verdict|judge)"),
        ("mark", r"(?<![a-z0-9_])(?:end|begin|start|close)\s+(?:of\s+)?(?:the\s+)?(?:data|conversation|reply|transcript|case|untrusted|user\s+input|input|tool\s+output)"),
    )
)  # fmt: skip
"""(code, pattern) over folded text; a pattern may cross a line only where it says so."""
STEMS = re.compile(
    rf"{_MARK}|{_HINT}|{_JUDGES}|{_LOOK_AWAY}|{_WHO}|{_STRICT_VALUE}|{_COUNT_AS}|[<>\[{{]|^\W*{_ROLES}|assistants?|agents?|models?|future|from now on"
    r"|(?:begin|end|start|close)\s|grad|judg|evaluat|scor|rating",
    re.MULTILINE,
)
"""A text without any of these cannot hold a finding."""
CORE = re.compile(
    r"verdict|veredict|judge|evaluator|grader|hint|ignoreall|ignoreprev|ignorethe|disregard|instruction|plusone|minusone|reward|score|abstain|вердикт|судья"
)
"""Stems that show through where letters were set apart or turned round."""
