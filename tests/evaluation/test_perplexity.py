"""The loss of references against float64 from the model's logits, on three devices."""

import dataclasses
import math

import jax
import numpy as np
import pytest
from tiny_translator import CONFIG, TEXT, model_of, params_of

from jax_transformer.config import Config, DataConfig, DecodingConfig
from jax_transformer.data.vocabularies.sentencepiece import train_vocabulary
from jax_transformer.evaluation.perplexity import PairBatches, loss_scores
from jax_transformer.parallel import Devices
from jax_transformer.runs.model import TrainedModel
from jax_transformer.runs.run_dir import Run

PAIRS = [
    ("a cat", "die katze"),
    ("", "die matte"),
    ("the cat sat", "die katze sitzt auf der matte"),
    ("a", "a"),
    ("the cat on the mat", "der"),
    ("the cat", "die katze sitzt auf der matte und a cat und die matte und der mat"),
    ("on the mat", "auf der matte"),
]
SCORED = [pair for i, pair in enumerate(PAIRS) if i not in (1, 5)]
SMOOTHING = 0.2


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "v.model"
    vocabulary = train_vocabulary(TEXT, 50, path, up_to=True)
    config = Config(
        CONFIG, decoding=DecodingConfig(batch_tokens=24), data=DataConfig(max_length=24)
    )
    training = dataclasses.replace(config.training, label_smoothing=SMOOTHING)
    run = Run("base", 1, dataclasses.replace(config, training=training))
    model = model_of(vocabulary)
    return TrainedModel(run, vocabulary, vocabulary, model, params_of(model), "last", [1])


@pytest.fixture(scope="module")
def by_hand(trained):
    """(smoothed loss, NLL) per token, each pair alone, in float64 from its logits."""
    vocabulary, size = trained.vocabulary, trained.vocabulary.size
    apply = jax.jit(lambda *pair: trained.module.apply({"params": trained.params}, *pair))
    off = SMOOTHING / (size - 1)
    entropy = -(1 - SMOOTHING) * math.log(1 - SMOOTHING) - SMOOTHING * math.log(off)
    smoothed = nll = tokens = 0
    for source, target in SCORED:
        ids = [[*vocabulary.encode(text), vocabulary.eos_id] for text in (source, target)]
        rows = np.full((2, 24), vocabulary.pad_id, np.int32)
        rows[0, : len(ids[0])] = ids[0]
        rows[1, : len(ids[1])] = [vocabulary.bos_id, *ids[1][:-1]]
        logits = np.asarray(apply(rows[:1], rows[1:]), np.float64)[0]
        for position, token in enumerate(ids[1]):
            log_probs = logits[position] - math.log(np.exp(logits[position]).sum())
            wanted = np.full(size, off)
            wanted[token] = 1 - SMOOTHING
            smoothed += -(wanted * log_probs).sum() - entropy
            nll -= log_probs[token]
            tokens += 1
    return smoothed / tokens, nll / tokens


@pytest.mark.slow
def test_the_losses_are_those_of_the_logits_of_each_pair_alone(trained, by_hand):
    translator = trained.translator(devices=Devices(3))
    sources, references = zip(*PAIRS, strict=True)
    scores, facts = loss_scores(translator, trained.config, sources, references)
    assert facts == {"sentences": 5, "left_out": 2}
    found = {score.metric: score.score for score in scores}
    smoothed, nll = by_hand
    assert found["loss"] == pytest.approx(smoothed, abs=1e-5)
    assert found["nll"] == pytest.approx(nll, abs=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(nll), rel=1e-5)
    assert abs(smoothed - nll) > 0.01


def test_each_side_of_a_batch_has_its_own_padding(trained):
    both = trained.vocabulary, trained.vocabulary
    model = trained.module.clone(target_vocabulary_size=both[1].size, target_pad_id=7)
    lines = list(zip(*SCORED, strict=True))
    for batch in PairBatches(model, both, *lines, max_length=24, batch_tokens=240).epoch():
        for tokens, pad in ((batch.source, both[0].pad_id), (batch.target, 7)):
            ends = (tokens == both[0].eos_id).argmax(axis=1)
            for row, end in zip(tokens, ends, strict=True):
                assert set(row[end + 1 :]) <= {pad}
    assert (batch.target == 7).any()
