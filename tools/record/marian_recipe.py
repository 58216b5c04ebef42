"""The results of Hugging Face's MarianMTModel with small random weights, and of its tokenizer."""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
import transformers  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]

from jax_transformer.data.vocabularies.sentencepiece import train_vocabulary
from tools.record.torch_recipe import Arrays, as_array, draw_weights, modules, named

PAD, BOS, EOS, SIZE = 0, 1, 2, 26
SOURCE = [[7, 3, 9, 12, 2, 0, 0], [5, 14, 2, 0, 0, 0, 0], [4, 25, 8, 13, 6, 11, 2]]
INPUTS = [[BOS, 8, 8, 10, 3], [BOS, 6, 0, 0, 0], [BOS, 11, 5, 21, 17]]
NEW_TOKENS = 10
SEED = 19  # a model with all options does not just repeat a token then, and an output ends early
SHARED: dict[str, Any] = {
    "vocab_size": SIZE,
    "decoder_vocab_size": SIZE,
    "d_model": 12,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 20,
    "activation_function": "relu",
    "scale_embedding": True,
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "decoder_start_token_id": BOS,
    "forced_eos_token_id": EOS,
}
PAPER = {
    "max_position_embeddings": 1024,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
}
# With biases in attention and learned positions too.
OPTIONS = {
    "max_position_embeddings": 32,
    "share_encoder_decoder_embeddings": False,
    "tie_word_embeddings": False,
}
# The vocabulary is learned from these lines.
CORPUS = ["a b c d e f s", "abc bcd cde def efs"] * 20
LINES = [
    "a b c",
    "A  b\tc",
    "abc </s> def",
    "<pad> <s>",
    "a \u6f22\u5b57 b",
    " e f ",
    "ss\u2028s",
    "",
    "a b c d e f s a b",
]
TOKENIZER = {
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "split_special_tokens": True,
}


def record() -> Arrays:
    """Return token ids; settings (JSON), tensors and results of two models; text and its ids."""
    found = {"source": np.array(SOURCE), "inputs": np.array(INPUTS), **named("text", text())}
    all_settings = {"paper": {**SHARED, **PAPER}, "options": {**SHARED, **OPTIONS}}
    for kind, settings in all_settings.items():
        model = build_model(settings, plain=kind == "paper")
        tensors = {**named("tensor", tensors_of(model)), "logits": logits(model)}
        if kind == "options":
            tensors["greedy"] = greedy(model)
        found |= {f"{kind}/{name}": as_array(tensor) for name, tensor in tensors.items()}
        found[f"{kind}/settings"] = np.array(json.dumps(settings))
    return found


def build_model(settings: dict[str, Any], plain: bool) -> nn.Module:
    """Return a random model in float64.

    plain: True for a model without biases in attention, and with Marian's sinusoids.
    The epsilon of the norms is Marian's own and ours, which the README.md of an export sets.
    """
    model = transformers.MarianMTModel(transformers.MarianConfig(**settings)).eval()
    encoder, decoder = (stack.embed_positions.weight for stack in stacks(model))
    sinusoids = encoder.detach().clone()
    draw_weights(model, SEED)
    with torch.no_grad():
        # One table for both sides, as ours.
        for table in (encoder, decoder):
            table.copy_(sinusoids if plain else encoder)
        for name, parameter in model.named_parameters():
            if plain and name.endswith("_proj.bias"):
                parameter.zero_()
    for norm in modules(model, nn.LayerNorm):
        norm.eps = 1e-6
    return model.double()


def stacks(model: Any) -> tuple[Any, Any]:
    """Return the encoder and the decoder."""
    return model.get_encoder(), model.get_decoder()


def tensors_of(model: Any) -> dict[str, Tensor]:
    """Return the tensors that a file of the model must hold: neither sinusoids nor tied copies."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    if model.config.tie_word_embeddings:
        tensors = {
            name: tensor for name, tensor in tensors.items() if "embed_positions" not in name
        }
    return tensors


def encoder_inputs() -> dict[str, Tensor]:
    """Return the source and its mask as keyword arguments of the model."""
    source = torch.tensor(SOURCE)
    return {"input_ids": source, "attention_mask": (source != PAD).long()}


def logits(model: Any) -> Tensor:
    """Return logits [B, T, V] of the token after each of the decoder's inputs."""
    with torch.no_grad():
        return model(**encoder_inputs(), decoder_input_ids=torch.tensor(INPUTS)).logits


def greedy(model: Any) -> Tensor:
    """Return the outputs [B, NEW_TOKENS] of a greedy search, without BOS."""
    search = {"num_beams": 1, "do_sample": False, "max_new_tokens": NEW_TOKENS}
    return model.generate(**encoder_inputs(), **search)[:, 1:]


def text() -> Arrays:
    """Return the ids of each line, and the vocabulary and settings of the tokenizer, as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        model, pieces = Path(folder) / "source.spm", Path(folder) / "vocab.json"
        vocabulary = train_vocabulary(CORPUS, SIZE, model)
        ids = {piece: i for i, piece in enumerate(vocabulary.pieces(range(SIZE)))}
        pieces.write_text(json.dumps(ids), encoding="utf-8")
        files = {"source_spm": str(model), "target_spm": str(model), "vocab": str(pieces)}
        tokenizer = transformers.MarianTokenizer(**files, **TOKENIZER)
        rows = [tokenizer(line).input_ids for line in LINES]
    recorded = {"corpus": CORPUS, "vocab": ids, "settings": TOKENIZER, "lines": LINES, "ids": rows}
    return {name: np.array(json.dumps(value)) for name, value in recorded.items()}
