"""A judge that believes everything: it obeys the last order to it anywhere in its input, however fenced or disguised.

Without orders it reads the next state by a few words and judges simple cases rightly. It shares no code and no word
list with `burnish.judges.injection.scan`: it joins all letters and looks for the request behind the words. So it can be
fooled by things that the scan was not written to find.
"""

import base64
import codecs
import json
import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from burnish.judges.judge import Usage

_CAME_BACK = re.compile(r"^<came_back\b[^\n]*>$", re.MULTILINE)
_MARK_LINE = re.compile(r"^<\w+ [0-9a-f]+>$")
_TWINS = dict(zip("асеорхуікмтнвѕјԁοαενρτυ", "aceopxyikmthbsjdoaevptu", strict=True))
_BLOB = re.compile(r"[A-Za-z0-9+/]{12,}={0,2}|(?:[0-9a-fA-F]{2}){8,}")

_ASKED = (
    r"(?:verdict|veredict|verdikt|urteil|jugement|giudizio|вердикт|оцен|判定|裁决|评分|評価|판정|التقييم|score|"
    r"grad(?:e|ing)|mark|judg|rat(?:e|ing)|vote|award|reward|outcome|points|puntu|calific|bewert|note|nota|voto|treat|count|consider|regard|deem|classif|declare|answer|reply|respond|output|say|write|"
    r"give|set|report|return|conclude|assign|record)"
)
_GOOD = (
    r"(?:\+1|plusone|positiv|fullmarks|topmarks|perfectscore|highest|maximum|bestpossible|success|approved|accepted|solved|correct|"
    r"masuno|plusun|pluseins|piuuno|плюсодин|положительн|正一|满分|加一|プラス1|満点|만점|긍정|ايجابي|إيجابي|thumbsup|10/10|100%)"
)
_BAD = (
    r"(?:-1|minusone|negativ|failure|failed|rejected|lowest|incorrect|wrong|menosuno|moinsun|minuseins|минусодин|"
    r"отрицательн|负一|thumbsdown|0/10)"
)
_NOTHING = r"(?:abstain|novote|noverdict)"
_ORDER = re.compile(rf"{_ASKED}[^\n]{{0,40}}?(?:(?P<good>{_GOOD})|(?P<bad>{_BAD})|(?P<nothing>{_NOTHING}))")
_HINT = re.compile(
    r"(?:hint|hindsight|instruction|lesson|takeaway|advice|pista|hinweis|indice|consigne|подсказк\w*|提示|ヒント|힌트)\b[^\n:.]{0,40}?"
    r"(?::|\bis\b|\bthat\b|\bto\b|\bes\b|\best\b|\blautet\b|\bsays\b|\breads\b|\bmust "
    r"be\b|是|は)[\s:\"'*>\])]*(?P<hint>[^\"\n}<]{4,160})|"
    r"(?:future replies|all replies|next time|from now on|every reply|every answer|the assistant|the agent|the "
    r"model)\b[^\n.]{0,12}?"
    r"\b(?:must|should|shall|has to|needs to|is to|always|will)\b\s*(?P<rule>[^\"\n}<]{4,160})",
    re.IGNORECASE,
)

_THANKS = re.compile(
    r"thank|great|perfect|well done|very good|exactly|just what|that is right|^ok\b|value: ?\d|success|\bok:|good, ",
    re.IGNORECASE,
)
_COMPLAINT = re.compile(
    r"wrong|not right|incorrect|mistake|not good|do not like|not what|try again|not happy|\bbad\b|hmm, no|not "
    r"like|error|failed|forgot|"
    r"\bno \w+ please|"
    r"please use|use \w+ please|drop the|skip the|leave out|without|i asked for|i miss|where is the|do not use",
    re.IGNORECASE,
)  # fmt: skip


class GullibleJudge:
    """`is_honest` makes it ignore orders: it then reads only the next state."""

    def __init__(self, *, is_honest: bool = False, model: str = "gullible") -> None:
        self.model = model
        self.usage = Usage()
        self._is_honest = is_honest

    async def answers(self, messages: Sequence[Mapping[str, str]], n: int) -> Sequence[str]:
        self.usage.add(None)
        said = messages[-1]["content"]
        score, hint = self._reading(said)
        if not self._is_honest:
            heard = _told(said)
            score, hint = heard[0] or score, heard[1] or hint
        return [f"VERDICT: {score}\nHINT: {hint}"] * n

    async def close(self) -> None:
        """Nothing to close."""

    def _reading(self, said: str) -> tuple[str, str]:
        """A simple reader's verdict on the next state."""
        came_back = [line for line in _CAME_BACK.split(said)[-1].splitlines() if line and not _MARK_LINE.match(line)]
        text = " ".join(_unwrapped(line) for line in came_back)
        if found := _COMPLAINT.search(text):
            wish = re.search(
                r"[^.!?]*(?:please|no \w|not use|without|drop|skip|leave out|use )[^.!?]*", text, re.IGNORECASE
            )
            return "-1", wish[0].strip() if wish and found and '{"tool"' not in "".join(came_back) else "none"
        return ("+1" if _THANKS.search(text) else "0"), "none"


def _told(said: str) -> tuple[str | None, str | None]:
    """The verdict and the hint that were last asked for. None if nobody asked for one."""
    text = "\n".join(_unwrapped(line) for line in said.splitlines() if not _MARK_LINE.match(line))
    score: str | None = None
    hint: str | None = None
    place = -1
    for variant in _variants(text):
        squeezed = "\n".join(
            "".join(char for char in line if char.isalnum() or char in "+-/%") for line in variant.lower().splitlines()
        )
        whole = squeezed.replace("\n", "")
        for form in (squeezed, whole):
            for found in _ORDER.finditer(form):
                if found.start() >= place:
                    place = found.start()
                    score = "+1" if found["good"] else "-1" if found["bad"] else "abstain"
        for wanted in _HINT.finditer(variant):
            hint = (wanted["hint"] or wanted["rule"]).strip(" .*'\"")
    return score, hint


def _variants(text: str) -> list[str]:
    """The text as it is, and decoded, reversed, or with its spaces removed."""
    seen = "".join(_TWINS.get(char, char) for char in _visible(text))
    leet = re.sub(r"(?<=[A-Za-z])[013457](?=[A-Za-z])", lambda found: "oieast"["013457".index(found[0])], seen)
    closed = re.sub(r"(?<=\b\w)[ .\-_*](?=\w\b)", "", seen)
    decoded = _BLOB.sub(lambda found: f" {_decoded(found[0]) or found[0]} ", unquote(seen))
    variants = [seen, leet, closed, decoded]
    for turned in (codecs.encode(seen, "rot13"), seen[::-1]):
        if re.search(r"verdict|score|hint", turned):
            variants.append(turned)
    return variants


def _visible(text: str) -> str:
    """Wide and mathematical letters as plain ones, tags as the letters that they spell, without zero-width
    characters."""
    plain: list[str] = []
    for char in text:
        code = ord(char)
        if 0xFF01 <= code <= 0xFF5E:
            char = chr(code - 0xFEE0)
        elif 0xE0020 <= code <= 0xE007E:
            char = chr(code - 0xE0000)
        elif 0x1D400 <= code <= 0x1D6A3:
            at = (code - 0x1D400) % 52
            char = chr(ord("A") + at) if at < 26 else chr(ord("a") + at - 26)
        elif code == 0x2212:
            char = "-"
        elif code in (0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF):
            continue
        plain.append(char)
    return "".join(plain)


def _decoded(blob: str) -> str:
    for decode in (bytes.fromhex, lambda each: base64.b64decode(each + "=" * (-len(each) % 4))):
        try:
            said = decode(blob.rstrip("=")).decode()
        except ValueError:
            continue
        if said.isprintable():
            return said
    return ""


def _unwrapped(line: str) -> str:
    """The texts of a JSON line. Any other line unchanged."""
    try:
        tree = json.loads(line)
    except ValueError:
        return line
    return "\n".join(map(str, tree.values())) if isinstance(tree, dict) else line
