"""Drift: how far a version's prediction of the next token is from the base's. It needs only the likeliest tokens of
each.

Any base can be asked for it, also one that passes no forgetting prompt. It sees a collapse, and not a lost ability.
"""

import math
from collections.abc import Collection, Mapping

N_TOLD = 20
"""Likeliest tokens that are compared one by one. A prediction may name a sampled one beside them, which says little."""
MAX_DRIFT = 1.0
"""Nats at which a prediction is no longer the base's: the base's own tokens have lost a factor e on average.

The learner's own step is at most 0.08 nats a token (`learner.recipe.step_kl`). One token for every prompt, or no
preference at all, is several nats away from any base with preferences (docs/decisions/0029-gate-for-any-base.md has the
figures).
"""
_LEAST = 1e-12
"""Least probability, so that no logarithm is infinite."""


def drift(base: Mapping[int, float], version: Mapping[int, float]) -> float:
    """KL(base ‖ version) in nats, of two predictions as log-probs by token: over the tokens that either names, and the
    rest as one.

    It is an estimate from below. Infinite if a log-prob is not a finite number, or if a prediction is empty.
    """
    if not base or not version or not all(map(math.isfinite, [*base.values(), *version.values()])):
        return math.inf
    base, version = _likeliest(base), _likeliest(version)
    tokens = [*base, *(token for token in version if token not in base)]
    pairs = zip(_spread(base, tokens), _spread(version, tokens), strict=True)
    return math.fsum(p * math.log(p / q) for p, q in pairs)


def _likeliest(named: Mapping[int, float]) -> Mapping[int, float]:
    return dict(sorted(named.items(), key=lambda item: -item[1])[:N_TOLD])


def _spread(named: Mapping[int, float], tokens: Collection[int]) -> list[float]:
    """Probabilities of `tokens`, then of all the rest.

    A token that is not named is at most as likely as the last one that is. Those tokens share what is left with the
    rest.
    """
    known = {token: math.exp(logprob) for token, logprob in named.items()}
    left = max(0.0, 1.0 - math.fsum(known.values()))
    n_unknown = len(tokens) - len(known)
    each = min(*known.values(), left / (n_unknown + 1))
    spread = [*(known.get(token, each) for token in tokens), left - n_unknown * each]
    return [max(_LEAST, value) for value in spread]
