"""The language of a text, roughly."""

import pytest

from burnish.adapters.evidence.languages import language_of


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Where is my order, and what do I do with the old one?", "en"),
        ("Wo ist meine Bestellung und was mache ich mit der alten?", "de"),
        ("Où est ma commande et que dois-je faire de la vieille ?", "fr"),
        ("¿Dónde está mi pedido y qué hago con el viejo?", "es"),
        ("Dov'è il mio ordine e cosa faccio con quello che ho?", "it"),
        ("Onde está o meu pedido e como faço para não pagar?", "pt"),
        ("Waar is mijn bestelling en wat doe ik met de oude?", "nl"),
        ("Gdzie jest moje zamówienie i co mam zrobić ze starym?", "pl"),
        ("私の注文はどこですか", "ja"),
        ("我的订单在哪里", "zh"),
        ("내 주문은 어디에 있나요", "ko"),
        ("Где мой заказ?", "Cyrillic"),
        ("أين طلبي", "ar"),
        ("4711", None),
        ("print(x)", None),
        ("", None),
    ],
)
def test_a_language_is_known_by_script_or_function_words(text: str, language: str | None) -> None:
    assert language_of(text) == language
