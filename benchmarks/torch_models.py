"""The Transformer in PyTorch, twice: as an expert tunes it, and as nn.Transformer is."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
import torch.nn.functional as F  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]

EPSILON = 1e-6  # of LayerNorm, inside the root, as ours


def positions(length: int, d_model: int) -> Tensor:
    """Sines and cosines [length, d_model] of §3.5."""
    angles = np.arange(length)[:, None] * 10000.0 ** (-np.arange(0, d_model, 2) / d_model)
    table = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, d_model)
    return torch.tensor(table, dtype=torch.float32)


def plain_attention(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, dropout: float
) -> Tensor:
    """softmax(Q K^T / sqrt(d_k)) V in single operations; heads before positions."""
    scores = torch.matmul(queries * queries.shape[-1] ** -0.5, keys.transpose(-2, -1))
    weights = F.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), dim=-1)
    return torch.matmul(F.dropout(weights, dropout, dropout > 0), values)


def fused_attention(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, dropout: float
) -> Tensor:
    """The same by PyTorch's own kernel, which skips what a causal mask (two axes) hides."""
    if mask.dim() == 2:
        return F.scaled_dot_product_attention(
            queries, keys, values, dropout_p=dropout, is_causal=True
        )
    return F.scaled_dot_product_attention(queries, keys, values, mask, dropout)


ATTENTIONS = {"sdpa": fused_attention, "plain": plain_attention}


class Attention(nn.Module):
    """Multi-head attention; W^Q, W^K and W^V are one product where their input is the same."""

    def __init__(self, d_model: int, heads: int, d_k: int, d_v: int, own: bool) -> None:
        """own: self-attention, with queries out of the same product as keys and values."""
        super().__init__()
        self.heads, self.d_k, self.d_v, self.own = heads, d_k, d_v, own
        widths = heads * (d_k + d_v)
        self.inputs = nn.Linear(d_model, widths + heads * d_k if own else widths, bias=False)
        self.query: nn.Linear | None = None if own else nn.Linear(d_model, heads * d_k, bias=False)
        self.output = nn.Linear(heads * d_v, d_model, bias=False)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # [B, H, T, d]

    def forward(
        self, x: Tensor, other: Tensor, mask: Tensor, attend: Any, dropout: float
    ) -> Tensor:
        """x [B, Q, d_model] attends to `other` [B, K, d_model] by `attend`."""
        of_k, of_v = self.heads * self.d_k, self.heads * self.d_v
        if self.query is None:
            queries, keys, values = self.inputs(x).split([of_k, of_k, of_v], dim=-1)
        else:
            queries = self.query(x)
            keys, values = self.inputs(other).split([of_k, of_v], dim=-1)
        attended = attend(
            self._heads(queries), self._heads(keys), self._heads(values), mask, dropout
        )
        return self.output(attended.transpose(1, 2).flatten(2))

    def load(self, read: Any) -> None:
        """Our [d_model, H, d] matrices, side by side and transposed."""
        query, key, value = (
            read(f"{name}/kernel").flatten(1).T for name in ("query", "key", "value")
        )
        if self.query is None:
            self.inputs.weight.copy_(torch.cat([query, key, value]))
        else:
            self.query.weight.copy_(query)
            self.inputs.weight.copy_(torch.cat([key, value]))
        self.output.weight.copy_(read("output/kernel").flatten(0, 1).T)


class Layer(nn.Module):
    """An encoder's or a decoder's layer, post-norm."""

    def __init__(self, sizes: Mapping[str, int], cross: bool) -> None:
        """sizes: d_model, d_ff, heads, d_k, d_v; cross: with attention over the encoder."""
        super().__init__()
        d_model, d_ff = sizes["d_model"], sizes["d_ff"]
        widths = (d_model, sizes["heads"], sizes["d_k"], sizes["d_v"])
        self.self_attention = Attention(*widths, own=True)
        self.cross_attention = Attention(*widths, own=False) if cross else None
        self.inner, self.outer = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        names = ["self_attention", *(["cross_attention"] if cross else []), "feed_forward"]
        self.norms = nn.ModuleDict({name: nn.LayerNorm(d_model, EPSILON) for name in names})

    def forward(
        self, x: Tensor, mask: Tensor, encoded: Tensor, encoded_mask: Tensor, how: "Tuned"
    ) -> Tensor:
        """Each sub-layer, dropout, sum and norm; `how` has attention and rates."""
        attention = (how.attend, how.attention_dropout)
        x = self._add(x, self.self_attention(x, x, mask, *attention), "self_attention", how)
        if self.cross_attention is not None:
            attended = self.cross_attention(x, encoded, encoded_mask, *attention)
            x = self._add(x, attended, "cross_attention", how)
        return self._add(x, self.outer(F.relu(self.inner(x))), "feed_forward", how)

    def _add(self, x: Tensor, sublayer: Tensor, name: str, how: "Tuned") -> Tensor:
        return self.norms[name](x + F.dropout(sublayer, how.dropout, how.dropout > 0))

    def load(self, read: Any) -> None:
        """Parameters by the names of ours."""
        self.self_attention.load(lambda name: read(f"self_attention/{name}"))
        if self.cross_attention is not None:
            self.cross_attention.load(lambda name: read(f"cross_attention/{name}"))
        for name, linear in (("inner", self.inner), ("outer", self.outer)):
            linear.weight.copy_(read(f"feed_forward/{name}/kernel").T)
            linear.bias.copy_(read(f"feed_forward/{name}/bias"))
        for name, norm in self.norms.items():
            assert isinstance(norm, nn.LayerNorm)
            norm.weight.copy_(read(f"{name}_norm/norm/scale"))
            norm.bias.copy_(read(f"{name}_norm/norm/bias"))


class Tuned(nn.Module):
    """Our model, in the way that is fast in PyTorch; sizes are those of the parameters given."""

    def __init__(self, params: Mapping[str, np.ndarray], pad_id: int, length: int) -> None:
        """params: by our names; length: most positions. Dropout is off until it is set."""
        super().__init__()
        d_model, heads, d_k = params["encoder_0/self_attention/query/kernel"].shape
        sizes = {
            "d_model": d_model,
            "heads": heads,
            "d_k": d_k,
            "d_v": params["encoder_0/self_attention/value/kernel"].shape[2],
            "d_ff": params["encoder_0/feed_forward/inner/kernel"].shape[1],
        }
        count = len({name.split("/")[0] for name in params if name.startswith("encoder_")})
        self.pad_id, self.dropout, self.attention_dropout = pad_id, 0.0, 0.0
        self.attend = fused_attention
        self.embedding = nn.Embedding(*params["embedding/matrix"].shape)
        self.register_buffer("positions", positions(length, d_model), persistent=False)
        self.register_buffer("causal", torch.ones(length, length, dtype=torch.bool).tril())
        self.encoder = nn.ModuleList([Layer(sizes, cross=False) for _ in range(count)])
        self.decoder = nn.ModuleList([Layer(sizes, cross=True) for _ in range(count)])
        with torch.no_grad():
            self._load(params)

    def _load(self, params: Mapping[str, np.ndarray]) -> None:
        self.embedding.weight.copy_(torch.tensor(params["embedding/matrix"]))
        for side, layers in (("encoder", self.encoder), ("decoder", self.decoder)):
            for i, layer in enumerate(layers):
                assert isinstance(layer, Layer)
                layer.load(lambda name, at=f"{side}_{i}": torch.tensor(params[f"{at}/{name}"]))

    def _embed(self, tokens: Tensor) -> Tensor:
        scaled = self.embedding(tokens) * self.embedding.embedding_dim**0.5
        embedded = scaled + self.get_buffer("positions")[: tokens.shape[1]]
        return F.dropout(embedded, self.dropout, self.dropout > 0)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits [B, T, V] of what follows each position of `target`, which starts with BOS."""
        real = (source != self.pad_id)[:, None, None, :]
        encoded = self._embed(source)
        for layer in self.encoder:
            encoded = layer(encoded, real, encoded, real, self)
        causal = self.get_buffer("causal")[: target.shape[1], : target.shape[1]]
        hidden = self._embed(target)
        for layer in self.decoder:
            hidden = layer(hidden, causal, encoded, real, self)
        return F.linear(hidden, self.embedding.weight)


class Stock(nn.Module):
    """nn.Transformer with its defaults, between a tied embedding and its logits.

    Its own: biases on attention, dropout inside the feed-forward networks, norms behind both
    stacks, positions before rows.
    """

    def __init__(
        self, params: Mapping[str, np.ndarray], pad_id: int, length: int, dropout: float
    ) -> None:
        """params: for their sizes and the embedding."""
        super().__init__()
        d_model, heads, _ = params["encoder_0/self_attention/query/kernel"].shape
        count = len({name.split("/")[0] for name in params if name.startswith("encoder_")})
        d_ff = params["encoder_0/feed_forward/inner/kernel"].shape[1]
        matrix = torch.tensor(params["embedding/matrix"])
        self.pad_id = pad_id
        self.embedding = nn.Embedding.from_pretrained(matrix, freeze=False)
        self.transformer = nn.Transformer(d_model, heads, count, count, d_ff, dropout)
        self.dropout = nn.Dropout(dropout)
        self.generator = nn.Linear(d_model, len(matrix), bias=False)
        self.generator.weight = self.embedding.weight
        self.register_buffer("positions", positions(length, d_model)[:, None])

    def set_attention_dropout(self, rate: float) -> None:
        """nn.Transformer has one rate for all; the work compared has one for attention."""
        for module in self.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = rate

    def _embed(self, tokens: Tensor) -> Tensor:
        scaled = self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(scaled + self.get_buffer("positions")[: len(tokens)])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits [T, B, V]; source and target are [B, S] and [B, T]."""
        source_padding, target_padding = source == self.pad_id, target == self.pad_id
        shape = (target.shape[1], target.shape[1])
        future = torch.ones(shape, dtype=torch.bool, device=target.device).triu(1)
        hidden = self.transformer(
            self._embed(source.T),
            self._embed(target.T),
            tgt_mask=future,
            src_key_padding_mask=source_padding,
            tgt_key_padding_mask=target_padding,
            memory_key_padding_mask=source_padding,
        )
        return self.generator(hidden)
