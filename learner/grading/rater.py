"""The rater: it learns from people's ratings of some replies how they would rate others.

The frozen base reads a reply behind its prompt. What it then knows about the reply is in its hidden states: the mean
over the reply's tokens and the last one, at four layers around its middle. Logistic regression on these features
predicts praise. A small model that cannot judge in words still knows what a reply is like (linear probes, arXiv
1610.01644).

Guarantee: a rater that cannot rank replies that it has not seen does not speak. Its rank is measured by
cross-validation, in which all ratings of one prompt are left out together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from burnish.learner.data.rows import Text, Tokens
from burnish.learner.model.policy import Policy, Weights
from burnish.rewards import MIN_RATINGS

MIN_RANK = 0.65
"""Least share of pairs, one praised and one disliked reply, that the rater orders rightly without having seen them."""
N_FOLDS = 5
MAX_TOKENS = 256
"""Tokens of a reply that are read."""
DEPTHS = (0.27, 0.4, 0.53, 0.67)
"""Where the four layers are, as shares of the model's depth."""
_PENALTY = 0.01
_BATCH_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class Rated:
    """A reply, and whether people praised it. `name` identifies it, `prompt` the prompt that it answers."""

    name: str
    prompt: str
    text: Text
    is_praised: bool


@dataclass(frozen=True, slots=True)
class Rater:
    """`rank` is the share of unseen pairs that it orders rightly, 0.5 by chance."""

    n_praised: int
    n_disliked: int
    rank: float
    _mean: Tensor
    _scale: Tensor
    _weights: Tensor

    @property
    def is_fit(self) -> bool:
        return min(self.n_praised, self.n_disliked) >= MIN_RATINGS and self.rank >= MIN_RANK

    def scores(self, features: Tensor) -> list[float]:
        """P(praise) of each reply. `features` [N, F]."""
        values = (features - self._mean) / self._scale @ self._weights[:-1] + self._weights[-1]
        return [float(value) for value in torch.sigmoid(values)]


def fit(features: Tensor, rated: Sequence[Rated]) -> Rater | None:
    """The rater of these ratings. `features` [N, F]. None without both praise and dislike."""
    praised = torch.tensor([each.is_praised for each in rated])
    n_praised, n_disliked = int(praised.sum()), int((~praised).sum())
    if not n_praised or not n_disliked:
        return None
    mean, scale, weights = _regress(features, praised)
    return Rater(n_praised, n_disliked, _rank(features, praised, rated), mean, scale, weights)


@torch.no_grad()
def features(policy: Policy, rows: Sequence[Tokens]) -> Tensor:
    """What the base knows about each reply [N, F]."""
    base = policy.model.get_base_model()
    n_layers = int(base.config.get_text_config().num_hidden_layers)
    layers = sorted({max(1, round(depth * n_layers)) for depth in DEPTHS})
    texts = [[*row.prompt_ids, *row.completion_ids[:MAX_TOKENS]] for row in rows]
    found: dict[int, Tensor] = {}
    order = sorted(range(len(rows)), key=lambda i: len(texts[i]))
    with policy.using(Weights.BASE):
        for some in _batches(order, [len(text) for text in texts]):
            width = max(len(texts[i]) for i in some)
            ids = torch.tensor([texts[i] + [0] * (width - len(texts[i])) for i in some], device=policy.device)
            mask = torch.tensor([[1] * len(texts[i]) + [0] * (width - len(texts[i])) for i in some])
            states = base.get_decoder()(
                input_ids=ids, attention_mask=mask.to(policy.device), output_hidden_states=True, use_cache=False
            ).hidden_states
            for place, i in enumerate(some):
                reply = slice(len(rows[i].prompt_ids), len(texts[i]))
                own = [states[layer][place, reply].float().cpu() for layer in layers]
                found[i] = torch.cat([*(state.mean(0) for state in own), *(state[-1] for state in own)])
    return torch.stack([found[i] for i in range(len(rows))])


def _batches(order: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
    """`order`, the shortest first, in batches of at most `_BATCH_TOKENS` padded tokens."""
    batches: list[list[int]] = []
    for i in order:
        if batches and lengths[i] * (len(batches[-1]) + 1) <= _BATCH_TOKENS:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches


def _regress(features: Tensor, praised: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(mean [F], scale [F], weights [F + 1]) of logistic regression with an L2 penalty. The last weight is the bias."""
    mean = features.mean(0)
    scale = (features.std(0, correction=0) + 1e-4) * features.shape[1] ** 0.5
    inputs = torch.cat([(features - mean) / scale, torch.ones(len(features), 1)], 1)
    weights = torch.zeros(inputs.shape[1], requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=100)

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = torch.nn.functional.binary_cross_entropy_with_logits(inputs @ weights, praised.float())
        value = value + _PENALTY * weights[:-1].square().sum() / len(features)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad():
        optimizer.step(loss)  # type: ignore[no-untyped-call]
    return mean, scale, weights.detach()


def _rank(features: Tensor, praised: Tensor, rated: Sequence[Rated]) -> float:
    """The area under the ROC curve of ratings that were left out."""
    prompts = sorted({each.prompt for each in rated})
    fold = {prompt: number % N_FOLDS for number, prompt in enumerate(prompts)}
    folds = torch.tensor([fold[each.prompt] for each in rated])
    right, n_pairs = 0.0, 0
    for number in range(N_FOLDS):
        seen, unseen = folds != number, folds == number
        if praised[seen].all() or not praised[seen].any():
            continue
        mean, scale, weights = _regress(features[seen], praised[seen])
        values = (features[unseen] - mean) / scale @ weights[:-1]
        up, down = values[praised[unseen]], values[~praised[unseen]]
        difference = up[:, None] - down[None]
        right += float((difference > 0).sum() + 0.5 * (difference == 0).sum())
        n_pairs += difference.numel()
    return right / n_pairs if n_pairs else 0.5
