"""The whole model against torch.nn's own layers, with the same weights."""

import math
from typing import Any

import jax
import numpy as np
import pytest
from random_params import random_params

from jax_transformer.config import ModelConfig
from jax_transformer.models.transformer import Transformer

torch = pytest.importorskip("torch", reason="compares with torch.nn: pip install -e '.[torch]'")

PAD, SIZE = 0, 15
CONFIG = ModelConfig(
    num_layers=2, d_model=24, d_ff=40, num_heads=3, d_k=8, d_v=8, attention_bias=True
)
MODEL = Transformer(CONFIG, vocabulary_size=SIZE, pad_id=PAD)
SOURCE = np.array([[7, 3, 9, 12, 2, 0], [5, 14, 2, 0, 0, 0], [4, 4, 8, 13, 6, 2]])
TARGET = np.array([[1, 8, 8, 10, 3], [1, 6, 0, 0, 0], [1, 11, 5, 9, 0]])


def tensor(array: Any) -> Any:
    return torch.tensor(np.asarray(array), dtype=torch.float64)


def copy_attention(ours: Any, theirs: Any) -> None:
    """Our [d_model, H, d] matrices are torch's [H d, d_model], q, k and v in one."""
    names = ("query", "key", "value")
    matrices = [tensor(ours[name]["kernel"]).reshape(CONFIG.d_model, -1).T for name in names]
    theirs.in_proj_weight.copy_(torch.cat(matrices))
    theirs.in_proj_bias.copy_(torch.cat([tensor(ours[name]["bias"]).ravel() for name in names]))
    theirs.out_proj.weight.copy_(tensor(ours["output"]["kernel"]).reshape(-1, CONFIG.d_model).T)
    theirs.out_proj.bias.copy_(tensor(ours["output"]["bias"]))


def copy_layer(ours: Any, theirs: Any, norms: list[str]) -> None:
    copy_attention(ours["self_attention"], theirs.self_attn)
    if "cross_attention" in ours:
        copy_attention(ours["cross_attention"], theirs.multihead_attn)
    for name, linear in (("inner", theirs.linear1), ("outer", theirs.linear2)):
        linear.weight.copy_(tensor(ours["feed_forward"][name]["kernel"]).T)
        linear.bias.copy_(tensor(ours["feed_forward"][name]["bias"]))
    for i, name in enumerate(norms, start=1):
        norm = getattr(theirs, f"norm{i}")
        norm.weight.copy_(tensor(ours[name]["norm"]["scale"]))
        norm.bias.copy_(tensor(ours[name]["norm"]["bias"]))


def torch_positions(length: int) -> Any:
    table = torch.zeros(length, CONFIG.d_model, dtype=torch.float64)
    positions = torch.arange(length, dtype=torch.float64)[:, None]
    pairs = torch.arange(0, CONFIG.d_model, 2, dtype=torch.float64)
    angles = positions * torch.exp(-math.log(10000.0) * pairs / CONFIG.d_model)
    table[:, 0::2], table[:, 1::2] = torch.sin(angles), torch.cos(angles)
    return table


def torch_logits(params: Any, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """In float64. Layers stay in training mode, without dropout: no fused fast path."""
    options = {
        "d_model": CONFIG.d_model,
        "nhead": CONFIG.num_heads,
        "dim_feedforward": CONFIG.d_ff,
        "dropout": 0.0,
        "activation": "relu",
        "layer_norm_eps": 1e-6,
        "batch_first": True,
        "norm_first": False,
        "dtype": torch.float64,
    }
    matrix = tensor(params["embedding"]["matrix"])

    def embedded(tokens):
        scaled = torch.nn.functional.embedding(torch.tensor(tokens), matrix)
        return scaled * math.sqrt(CONFIG.d_model) + torch_positions(tokens.shape[1])

    source_padding, target_padding = torch.tensor(source == PAD), torch.tensor(target == PAD)
    future = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
    with torch.no_grad():
        encoded = embedded(source)
        for i in range(CONFIG.num_layers):
            layer = torch.nn.TransformerEncoderLayer(**options)
            copy_layer(params[f"encoder_{i}"], layer, ["self_attention_norm", "feed_forward_norm"])
            encoded = layer(encoded, src_key_padding_mask=source_padding)
        hidden = embedded(target)
        for i in range(CONFIG.num_layers):
            layer = torch.nn.TransformerDecoderLayer(**options)
            norms = ["self_attention_norm", "cross_attention_norm", "feed_forward_norm"]
            copy_layer(params[f"decoder_{i}"], layer, norms)
            hidden = layer(
                hidden,
                encoded,
                tgt_mask=future,
                tgt_key_padding_mask=target_padding,
                memory_key_padding_mask=source_padding,
            )
        return (hidden @ matrix.T).numpy()


def test_logits_are_those_of_torch_s_layers_with_the_same_weights():
    params = random_params(MODEL)
    ours = np.asarray(jax.jit(MODEL.apply)({"params": params}, SOURCE, TARGET))
    theirs = torch_logits(params, SOURCE, TARGET)
    real = TARGET != PAD
    assert real.sum() == 11
    # Float32 against float64: 1e-5 of the largest logit.
    scale = np.abs(theirs[real]).max()
    np.testing.assert_allclose(ours[real], theirs[real], rtol=0, atol=1e-5 * scale)
