"""§6.1 Model and search together: source tokens in; translations and attention maps out."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jax_transformer.config import DecodingConfig
from jax_transformer.decoding.beam_search import Hypotheses, State, Step, beam_search
from jax_transformer.models.transformer import Transformer, empty_cache
from jax_transformer.training.train_step import shift_right


def translate(
    model: Transformer,
    params: Any,
    source: Int[Array, "B S"],
    decoding: DecodingConfig,
    *,
    bos_id: int,
    eos_id: int,
    n_best: int = 1,
    usual: float = 1.0,
    scores: bool = True,
    max_lengths: Int[Array, " B"] | None = None,
) -> Hypotheses:
    """The best translations of each row of `source` (token ids, EOS, then PAD).

    Each output has at most its own source's length + max_extra_length tokens, both counted
    with EOS, whatever batch it stands in, or as many as `max_lengths` says where that is less;
    but one at least. usual: most outputs have up to so many times their source's tokens; no
    more than the speed depends on it. scores: False spares greedy search what only log P needs,
    and leaves 0 in its place; a wider beam has them anyway. Pure; jit it with all but arrays
    static.

    >>> config = ModelConfig(num_layers=1, d_model=16, d_ff=32, num_heads=2, d_k=8, d_v=8)
    >>> model, source = Transformer(config, vocabulary_size=20, pad_id=0), jnp.array([[5, 6, 2]])
    >>> params = model.init(jax.random.key(0), source, source)["params"]
    >>> decoding = DecodingConfig(beam_size=2, max_extra_length=4)
    >>> best = translate(model, params, source, decoding, bos_id=1, eos_id=2, n_best=2)
    >>> best.tokens.shape, best.scores.shape  # [B, n_best, S + max_extra_length], [B, n_best]
    ((1, 2, 7), (1, 2))
    """
    lengths = (source != model.pad_id).sum(axis=1)  # [B]
    # An empty row only fills the batch: it may not keep the others waiting.
    limits = jnp.where(lengths > 0, lengths + decoding.max_extra_length, 1)
    if max_lengths is not None:
        limits = jnp.clip(max_lengths, 1, limits)
    length = source.shape[1] + decoding.max_extra_length
    return beam_search(
        *first_step(model, params, source, decoding.beam_size),
        limits,
        **_stages(usual * source.shape[1], len(source)),
        beam_size=decoding.beam_size,
        length=length,
        alpha=decoding.alpha,
        patience=decoding.patience,
        bos_id=bos_id,
        eos_id=eos_id,
        pad_id=model.pad_id,
        n_best=n_best,
        scores=scores or decoding.beam_size > 1,
    )


def first_step(
    model: Transformer, params: Any, source: Int[Array, "B S"], beam_size: int
) -> tuple[Step, State]:
    """The step function of a search, and its first state: the encoded source, an empty cache."""
    variables = {"params": params}
    memory: Any = model.apply(variables, source, method="encode")

    def step(state: Any, token: Int[Array, " N"], position: Int[Array, ""]) -> Any:
        memory, cache = state
        applied: Any = model.apply(variables, memory, cache, token, position, method="step")
        logits, cache = applied
        return logits, (memory, cache)

    return step, (memory.laid_out(beam_size), empty_cache(model.config, len(source), beam_size, 0))


def _stages(usual: float, batch: int) -> dict[str, Any]:
    """How a search spares work, where outputs are mostly of `usual` length.

    Sentences that go on by themselves do so by an eighth of the batch; at least 8 of them, for
    a product of fewer rows takes as long.
    """
    return {"room": max(math.ceil(usual), 16), "compact": max(batch // 8, 8)}


def log_probabilities(
    model: Transformer,
    params: Any,
    source: Int[Array, "B S"],
    target: Int[Array, "B T"],
    *,
    bos_id: int,
) -> Float[Array, "B T"]:
    """log P of each target token given the source and the tokens before it, in nats.

    Both sides end with EOS, then PAD; 0 where the target is PAD. Their sum over a row is
    the log P that `translate` reports for the same tokens. Pure.
    """
    logits: Any = model.apply({"params": params}, source, shift_right(target, bos_id))
    logits = logits.astype(jnp.float32)
    of_target = jnp.take_along_axis(logits, target[:, :, None], axis=-1)[:, :, 0]
    log_probs = of_target - jax.nn.logsumexp(logits, axis=-1)
    return jnp.where(target != model.pad_id, log_probs, 0.0)


def attention_maps(
    model: Transformer, params: Any, source: Int[Array, "B S"], target: Int[Array, "B T"]
) -> dict[str, Float[Array, "B H Q K"]]:
    """Every attention weight of the model on known pairs; `target` starts with BOS.

    Keys such as "encoder_0/self_attention", "decoder_3/cross_attention".

    >>> config = ModelConfig(num_layers=1, d_model=16, d_ff=32, num_heads=2, d_k=8, d_v=8)
    >>> model = Transformer(config, vocabulary_size=20, pad_id=0)
    >>> source, target = jnp.array([[5, 6, 7, 2]]), jnp.array([[1, 8, 9]])
    >>> params = model.init(jax.random.key(0), source, target)["params"]
    >>> for name, weights in sorted(attention_maps(model, params, source, target).items()):
    ...     print(name, weights.shape)
    decoder_0/cross_attention (1, 2, 3, 4)
    decoder_0/self_attention (1, 2, 3, 3)
    encoder_0/self_attention (1, 2, 4, 4)
    """
    sown: Any
    _, sown = model.apply({"params": params}, source, target, mutable=["intermediates"])
    return {
        f"{layer}/{attention}": maps["attention_weights"][0]
        for layer, sublayers in sown["intermediates"].items()
        for attention, maps in sublayers.items()
    }
