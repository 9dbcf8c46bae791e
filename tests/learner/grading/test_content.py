"""Content: what a reply shares with the base's reply."""

import math

from burnish.learner.grading import content

PROMPT = content.words("What is denim?")
REFERENCE = content.words("Denim is a strong cotton fabric, used for jeans and other clothes.")


def test_shared_words_count_once_and_words_of_the_prompt_never() -> None:
    def count(reply: str) -> float:
        return content.shared(content.words(reply), REFERENCE, PROMPT, lambda _: 1.0)

    assert count("Denim is a cotton FABRIC.") == 3.0  # a, cotton, fabric
    assert count("Denim is denim.") == count("") == count("What?") == 0.0
    assert count("Cotton, cotton, cotton!") == 1.0


def test_a_word_that_many_texts_have_says_little() -> None:
    weight = content.rarity([content.words("a cat"), content.words("a dog"), content.words("a bird")])
    assert weight("a") == 0.0 < weight("cat") == math.log(2.0) < weight("unheard") == math.log(4.0)


def test_words_of_any_script_are_words() -> None:
    assert content.words("Ein Öl-Wechsel, 2026!") == {"ein", "öl", "wechsel", "2026"}
    assert content.words("…?!") == frozenset()
