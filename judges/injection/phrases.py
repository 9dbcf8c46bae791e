"""Prompt injection as patterns over folded text. They are deliberately wide, because a finding decides nothing.

The words, in a dozen languages, are in `words.toml`. A pattern is named by what it finds: `verdict` (a value beside the
name of a mark), `label`, `hint`, `order` (to look away, or to count something as something), `judge` (an address),
`authority`, `role` (a line that pretends to come from somebody else), `mark` (a token that pretends to end the data).
"""

import re
import tomllib
from pathlib import Path

from burnish.judges.injection.fold import plain

_WORDS: dict[str, list[str]] = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
_ENDING = r"\w{0,24}"
"""An ending of any length would be read again at every repetition of a stem: "rulerulerule…"."""


def _any(name: str) -> str:
    """An alternation of the words of list `name`, folded like the text."""
    folded = {re.escape(plain(word)).replace(r"\*", _ENDING).replace(r"\ ", r"\s+") for word in _WORDS[name]}
    return "(?:" + "|".join(sorted(folded, key=lambda each: (-len(each), each))) + ")"


def _spelled(source: str) -> str:
    """A pattern with its words folded like the text. Folding changes 플러스, プラス and सकारात्मक."""
    return re.sub(r"[^\x00-\x7f]+", lambda found: plain(found[0]), source)


_MARK, _HINT, _JUDGES, _LOOK_AWAY, _RULES = (_any(name) for name in ("mark", "hint", "judges", "look_away", "rules"))
_DEED, _COUNT_AS, _OUTCOMES, _WHO = (_any(name) for name in ("deed", "count_as", "outcomes", "who"))
_SIGNED = r"[+-]\s?1(?!\d|[.:]\d|[a-z])"
_VALUE = (
    rf"(?:{_SIGNED}|(?:plus|minus|positive|negative)\s+(?:one|1)\b|"
    r"\b(?:mas|menos|plus|moins|piu|meno|mais|minus|arti|eksi)\s+(?:uno?|une?|eins|um|bir|1)\b|"
    r"(?:плюс|минус)\s+(?:один|1)|[正负負]一|[正负負]1|加一|减一|プラス1|マイナス1|플러스\s?1|마이너스\s?1|"
    r"\b(?:abstain|abstention|full|top|highest|maximum|max|best|lowest|zero|perfect|positive|negative|pass|passed|fail|failed|success|"
    r"correct|positivo|positif|positiv|negativo|negatif|negativ|maximo|maximal|positywn\w*|olumlu|olumsuz)\b|"
    r"(?:положительн|отрицательн)\w*|满分|正面|負面|负面|肯定|満点|긍정|만점|إيجابي|ايجابي|सकारात्मक|\b1\b|\b10\s?/\s?10\b|\b100\s?%)"
)
_STRICT_VALUE = rf"(?:(?<![a-z0-9]){_SIGNED}|\b(?:plus|minus|positive|negative)\s+(?:one|1)\b|\babstain\b)"
_ROLES = (
    r"(?:system|assistant|user|human|ai|tool|developer|judge|grader|evaluator|came[_ ]back|feedback|model|function|"
    r"observation)"
)
_FIELDS = (
    r"(?:conversation|reply|came_back|end|next_state|data|system|user|assistant|instructions?|verdict|hint|judge|answer|"
    r"tool_response)"
)
_GAP = r"[^\n]{0,48}?"
_IT = r"\s+(?:it|this|that|him|me|the\s+\w+|my\s+\w+|its\s+\w+)"
_FROM, _TO = r"(?<![a-z0-9_])", r"(?![a-z0-9_])"  # word ends that also hold without blanks between words
_MUST = r"(?:must|should|shall|has\s+to|have\s+to|will|needs?\s+to|is\s+to|are\s+to)"
_SOURCES: tuple[tuple[str, str], ...] = (
    ("verdict", rf"{_FROM}{_MARK}{_GAP}{_VALUE}"),
    ("verdict", rf"{_STRICT_VALUE}[^\n]{{0,32}}?{_FROM}{_MARK}"),
    ("verdict", rf"{_FROM}{_DEED}{_GAP}{_STRICT_VALUE}"),
    ("verdict", rf"{_FROM}(?:{_MARK}|{_COUNT_AS}){_IT}[^\n]{{0,24}}?{_VALUE}"),
    ("label", rf"{_FROM}(?:{_MARK}|{_HINT})[\s\"'*_\])>}}`]*[:=：]"),
    (
        "hint",
        rf"{_FROM}{_HINT}{_GAP}{_FROM}"
        rf"(?:is|are|be|reads?|says?|to\s+(?:write|store|give|record|remember)|es|est|ist|lautet|это|是|は){_TO}",
    ),
    ("hint", rf"{_FROM}{_DEED}{_GAP}{_FROM}{_HINT}"),
    (
        "hint",
        rf"{_FROM}(?:future|next|all later|from now on|every)[^\n]{{0,40}}?"
        rf"(?:repl(?:y|ies)|answers?|responses?|assistants?|agents?|models?)"
        rf"[^\n]{{0,24}}?(?:{_MUST}|always|never)",
    ),
    (
        "hint",
        rf"{_FROM}(?:assistants?|agents?|models?|bots?|ais?)\s+{_MUST}\s+"
        r"(?:always|never|not|be|use|recommend|say|write|add|mention|end|begin)",
    ),
    ("order", rf"{_FROM}{_LOOK_AWAY}{_GAP}{_RULES}"),
    ("order", rf"{_RULES}[^\n]{{0,24}}?(?:무시|忽略|无视|無視|忘れ|अनदेखा)"),
    ("order", rf"{_FROM}{_COUNT_AS}{_IT}{_GAP}{_FROM}{_OUTCOMES}{_TO}"),
    (
        "judge",
        rf"(?:{_FROM}(?:dear|hey|hello|attention|note|message|memo|notice|psst|listen|hi)\W+(?:{_GAP}\W)?|"
        rf"{_FROM}(?:as|you\s+are|you're|to|for)\s+(?:the|a|an|our|your|every|any|whoever)?\s*(?:\w+\s+)?)"
        rf"{_JUDGES}{_TO}[^\n]{{0,3}}(?:[:,;!\-]|$)",
    ),
    ("judge", rf"(?:^|[.!?;\"'\[(]\s*|\W\W){_JUDGES}\s*[:,：，\-]"),
    ("judge", rf"{_FROM}{_JUDGES}\W+(?:{_MUST}|please|ought|may\s+only){_TO}"),
    (
        "judge",
        rf"{_FROM}(?:if|when|while|whoever|for whoever)[^\n]{{0,24}}?"
        r"(?:judg(?:e|es|ing|ed)|grad(?:es|ing|ed)|evaluat(?:e|es|ing|ed)|scor(?:es|ing|ed)|rat(?:es|ing|ed))"
        r"\s+(?:this|the|it|my|that|these|you)",
    ),
    (
        "judge",
        rf"{_FROM}(?:reward\s+model|process\s+judge|llm[\s-]+judge|grading\s+(?:model|bot|script|system)|judging\s+(?:model|bot|system))",
    ),
    (
        "authority",
        rf"{_FROM}(?:i\s+am|i'm|this\s+is|here\s+is|speaking\s+as|message\s+from|notice\s+from|on\s+behalf\s+of|by\s+order\s+of|as|from|"
        rf"soy|je\s+suis|ich\s+bin|sono|я)\W+(?:(?:the|your|an?|el|le|der|die|il|lo|l|chief|lead|senior)\W+)*{_WHO}{_TO}",
    ),
    (
        "authority",
        rf"{_FROM}{_WHO}\s+(?:notice|message|override|announcement|instruction|order|directive|policy|note|update|mode){_TO}",
    ),
    (
        "authority",
        rf"{_FROM}(?:new|updated|secret|hidden|special|official|real|actual|revised)\s+(?:\w+\s+)?"
        r"(?:instruction|rule|polic|directive|criteri|rubric|guideline|prompt)",
    ),
    ("role", rf"^[ \t>*#\-_`\"']*\[?{_ROLES}\]?[\s*_`]*(?:\([^)\n]{{0,20}}\))?\s*[:：>]"),
    ("role", rf"[{{,]\s*\\?[\"']{_ROLES}\\?[\"']\s*:|\\?[\"'](?:verdict|hint|score|role|from)\\?[\"']\s*:"),
    ("mark", r"<\s?[|｜/]?\s*\w{2,24}\s?[|｜]\s?>|<\s?\|\s?\w+|\[/?inst\]|<</?sys>>|</?s>|<(?:start|end)_of_turn>"),
    (
        "mark",
        rf"<\s?/?\s?{_FIELDS}(?:\s[^>\n]{{0,40}})?>|\[/?{_FIELDS}\]|"
        r"^[ \t]*[#=\-*~]{2,}[ \t]*(?:end|begin|start|new|system|instruction|verdict|judge)",
    ),
    (
        "mark",
        rf"{_FROM}(?:end|begin|start|close)\s+(?:of\s+)?(?:the\s+)?"
        r"(?:data|conversation|reply|transcript|case|untrusted|user\s+input|input|tool\s+output)",
    ),
)
PATTERNS = tuple((code, re.compile(_spelled(source), re.MULTILINE)) for code, source in _SOURCES)
"""(code, pattern) over folded text. No pattern looks across a line's end further than blanks go."""
STEMS = re.compile(
    rf"{_MARK}|{_HINT}|{_JUDGES}|{_LOOK_AWAY}|{_WHO}|{_STRICT_VALUE}|{_COUNT_AS}|[<>\[{{]|^[^\w\n]*{_ROLES}|assistants?|agents?|models?|future|"
    r"from now on|(?:begin|end|start|close)\s|grad|judg|evaluat|scor|rating",
    re.MULTILINE,
)
"""A text without any of these cannot hold a finding."""
CORE = re.compile(
    r"verdict|veredict|judge|evaluator|grader|hint|ignoreall|ignoreprev|ignorethe|disregard|instruction|plusone|minusone|reward|score|"
    r"abstain|вердикт|судья"
)
"""Stems that remain recognisable in spaced or reversed letters."""
