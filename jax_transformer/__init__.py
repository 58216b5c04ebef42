"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), section by section.

A trained model is loaded from a run folder, which jt.train("demo", workdir="runs/demo") makes in
minutes, or jt.import_model("hf://Helsinki-NLP/opus-mt-en-de", "runs/opus") from a published model:

    import jax_transformer as jt

    model = jt.load("runs/demo")
    model.translate(["The dog sleeps."], beam_size=4)
    model.score(["The dog sleeps."], ["Der Hund schläft."])  # log P of each pair
    model.evaluate(["The dog sleeps."], ["Der Hund schläft."]).scores  # BLEU and others
    model.attention_maps("The dog sleeps.", "Der Hund schläft.")  # of every layer and head

The settings of an experiment, such as a row of the paper's tables; jt.experiments() has all names:

    config = jt.override(jt.experiment("table3-A-h1"), "model.num_layers=1", "model.d_model=64")

The model of these settings, one step of its training, and a search for translations (§3, §5, §6):

    import jax
    import jax.numpy as jnp

    module = jt.Transformer(config.model, vocabulary_size=100, pad_id=0)
    optimizer = jt.adam_with_warmup(config.model.d_model, warmup_steps=100)
    loss = jt.make_loss(module, bos_id=1, label_smoothing=config.training.label_smoothing)
    step = jax.jit(jt.make_train_step(loss, optimizer))
    batch = jt.Batch(source=jnp.array([[5, 6, 7, 2]]), target=jnp.array([[8, 9, 2]]))
    state, metrics = step(jt.initial_state(module, optimizer, seed=1), batch)
    jt.translate(module, state.params, batch.source, config.decoding, bos_id=1, eos_id=2)

Equation (1) is jt.scaled_dot_product_attention(Q, K, V); Figure 1 is jt.Transformer, made of
jt.EncoderLayer and jt.DecoderLayer, and these of jt.MultiHeadAttention, jt.FeedForward, jt.AddNorm.

help(jt.load), help(jt.TrainedModel) and so on explain every argument; dir(jt) has all names. A
wrong argument raises a jt.InputError, whose message is one line.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "1.0.0"

if TYPE_CHECKING:
    from jax_transformer.config import (
        Config,
        DataConfig,
        DecodingConfig,
        ModelConfig,
        TrainingConfig,
        override,
    )
    from jax_transformer.data.vocabularies.base import Vocabulary
    from jax_transformer.decoding.alignments import AttentionMap
    from jax_transformer.decoding.beam_search import beam_search, length_penalty
    from jax_transformer.decoding.generate import attention_maps, translate
    from jax_transformer.decoding.minimum_bayes_risk import minimum_bayes_risk
    from jax_transformer.errors import InputError
    from jax_transformer.formats import import_model
    from jax_transformer.models.attention import (
        KeysValues,
        MultiHeadAttention,
        attention_weights,
        causal_mask,
        local_attention_mask,
        padding_mask,
        scaled_dot_product_attention,
        segment_mask,
    )
    from jax_transformer.models.layers import AddNorm, Embedding, FeedForward, positional_encoding
    from jax_transformer.models.transformer import DecoderLayer, EncoderLayer, Transformer
    from jax_transformer.presets import experiment, experiments
    from jax_transformer.runs.batches import batches
    from jax_transformer.runs.load import load
    from jax_transformer.runs.model import TrainedModel
    from jax_transformer.runs.pipeline import train
    from jax_transformer.training.loss import LossSums, label_smoothed_cross_entropy
    from jax_transformer.training.optimizer import adam_with_warmup, learning_rate
    from jax_transformer.training.train_step import (
        Batch,
        gradients,
        initial_state,
        make_loss,
        make_train_step,
        shift_right,
    )

    # For type checkers alone: with it, help(jt) would print the help of every name.
    __all__ = [
        "AddNorm",
        "AttentionMap",
        "Batch",
        "Config",
        "DataConfig",
        "DecoderLayer",
        "DecodingConfig",
        "Embedding",
        "EncoderLayer",
        "FeedForward",
        "InputError",
        "KeysValues",
        "LossSums",
        "ModelConfig",
        "MultiHeadAttention",
        "TrainedModel",
        "TrainingConfig",
        "Transformer",
        "Vocabulary",
        "adam_with_warmup",
        "attention_maps",
        "attention_weights",
        "batches",
        "beam_search",
        "causal_mask",
        "experiment",
        "experiments",
        "gradients",
        "import_model",
        "initial_state",
        "label_smoothed_cross_entropy",
        "learning_rate",
        "length_penalty",
        "load",
        "local_attention_mask",
        "make_loss",
        "make_train_step",
        "minimum_bayes_risk",
        "override",
        "padding_mask",
        "positional_encoding",
        "scaled_dot_product_attention",
        "segment_mask",
        "shift_right",
        "train",
        "translate",
    ]
else:
    # Each name is imported when it is first used, because JAX and Flax take seconds.
    _NAMES = {  # of each module
        "config": "Config DataConfig DecodingConfig ModelConfig TrainingConfig override",
        "data.vocabularies.base": "Vocabulary",
        "decoding.alignments": "AttentionMap",
        "decoding.beam_search": "beam_search length_penalty",
        "decoding.generate": "attention_maps translate",
        "errors": "InputError",
        "formats": "import_model",
        "decoding.minimum_bayes_risk": "minimum_bayes_risk",
        "models.attention": "KeysValues MultiHeadAttention attention_weights causal_mask "
        "local_attention_mask padding_mask scaled_dot_product_attention segment_mask",
        "models.layers": "AddNorm Embedding FeedForward positional_encoding",
        "models.transformer": "DecoderLayer EncoderLayer Transformer",
        "presets": "experiment experiments",
        "runs.batches": "batches",
        "runs.load": "load",
        "runs.model": "TrainedModel",
        "runs.pipeline": "train",
        "training.loss": "LossSums label_smoothed_cross_entropy",
        "training.optimizer": "adam_with_warmup learning_rate",
        "training.train_step": "Batch gradients initial_state make_loss make_train_step "
        "shift_right",
    }
    _MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

    def __dir__() -> list[str]:
        """Return all public names, for completion."""
        return [*_MODULE_OF, "__doc__", "__version__"]

    def __getattr__(name: str) -> Any:
        """Import a public name."""
        if name not in _MODULE_OF:
            this = sys.modules[__name__]
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=this)  # Python adds "Did you mean"
        value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
        return globals().setdefault(name, value)  # the next time Python finds it itself
