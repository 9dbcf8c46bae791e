"""The language of a text, roughly: by its script, and in Latin script by function words. Pure.

It sorts turns into slices, where an error costs a little power and no correctness. A text without enough signs of one
language has none.
"""

import re
import unicodedata
from collections import Counter

LOOKED_AT = 2000
"""Characters of a text that are read."""
SCRIPTS = {
    "HIRAGANA": "ja",
    "KATAKANA": "ja",
    "HANGUL": "ko",
    "CJK": "zh",
    "CYRILLIC": "Cyrillic",
    "ARABIC": "ar",
    "DEVANAGARI": "hi",
    "GREEK": "el",
    "HEBREW": "he",
    "THAI": "th",
}
"""Languages by the first word of their letters' Unicode names. Cyrillic is used by several."""
WORDS = {
    "en": "the and of to is in that it for you not with what my me this can how i please do are was have",
    "de": "der die und das ist nicht ich ein eine zu den mit für auf wie was mir mein bitte sie wir kann dem auch",
    "fr": "le la les et est une des je vous pas pour dans que qui sur avec mon ma du ne ce cette comment quel",
    "es": "el la los las y es una que no para con por mi me del cómo qué esto está se su puede usted lo",
    "it": "il lo la gli che è una non per con mi del della come cosa questo sono si un le ho al mio può",
    "pt": "o os as e é uma que não para com por meu minha do da como isto está se um você em no na",
    "nl": "de het een en is niet ik van te dat voor met op mijn wat hoe kan je zijn er maar deze wij u",
    "pl": "i w nie na się jest to z do że jak co mi mój moja dla czy proszę ten ta po ale może są",
}
_BY_WORD = {
    word: [language for language, words in WORDS.items() if word in words.split()]
    for words in WORDS.values()
    for word in words.split()
}
FEWEST = 2
"""Function words that a language needs."""


def language_of(text: str) -> str | None:
    """A language's two-letter code, `Cyrillic`, or None if the text does not show one."""
    text = text[:LOOKED_AT]
    letters = [character for character in text if character.isalpha()]
    scripts = Counter(_script(character) for character in letters if not character.isascii())
    found = {language: n for language, n in scripts.items() if language is not None}
    if found and sum(found.values()) > 0.3 * len(letters):
        # Japanese is written with Chinese characters too
        return "ja" if "ja" in found else max(found, key=lambda each: found[each])
    hits: Counter[str] = Counter()
    for word in re.findall(r"[^\W\d_]+", text.lower()):
        for language in _BY_WORD.get(word, ()):
            hits[language] += 1
    first, second = [*hits.most_common(2), ("", 0), ("", 0)][:2]
    return first[0] if first[1] >= FEWEST and first[1] > second[1] else None


def _script(character: str) -> str | None:
    return SCRIPTS.get(unicodedata.name(character, "").partition(" ")[0])
