"""The paper's Transformer in PyTorch as an expert tunes it, with our parameters and our loss."""

import math
import re
from collections.abc import Callable, Mapping

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
import torch.nn.functional as F  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]

from jax_transformer.errors import InputError

EPSILON = 1e-6  # of LayerNorm, inside the root, as ours
ATTENTION_NAMES = ("self_attention", "cross_attention")
KERNELS = ("query", "key", "value", "output")
Arrays = Mapping[str, np.ndarray]


def plain_attention(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, dropout: float
) -> Tensor:
    """Compute softmax(Q K^T / sqrt(d_k)) V in single operations, on [B, H, T, d]."""
    scores = torch.matmul(queries * queries.shape[-1] ** -0.5, keys.transpose(-2, -1))
    weights = F.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), dim=-1)
    return torch.matmul(F.dropout(weights, dropout, dropout > 0), values)


def fused_attention(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, dropout: float
) -> Tensor:
    """Compute it by PyTorch's own kernel, which skips what a causal mask (two axes) hides."""
    if mask.dim() == 2:
        return F.scaled_dot_product_attention(
            queries, keys, values, dropout_p=dropout, is_causal=True
        )
    return F.scaled_dot_product_attention(queries, keys, values, mask, dropout)


ATTENTIONS = {"sdpa": fused_attention, "plain": plain_attention}


class Attention(nn.Module):
    """Multi-head attention; W^Q, W^K and W^V are one product if their input is the same."""

    def __init__(self, kernels: Arrays, is_self: bool) -> None:
        """Copy our kernels, given by "query", "key", "value" and "output"."""
        super().__init__()
        d_model, self.heads, d_k = kernels["query"].shape
        self.is_self = is_self
        self.widths = [self.heads * d_k, self.heads * d_k, self.heads * kernels["value"].shape[2]]
        self.inputs = nn.Linear(d_model, sum(self.widths), bias=False)
        self.output = nn.Linear(self.widths[2], d_model, bias=False)
        # Our [d_model, H, d] kernels, side by side and transposed.
        flat = [kernels[name].reshape(d_model, -1) for name in ("query", "key", "value")]
        _copy(self.inputs.weight, np.concatenate(flat, axis=1).T)
        _copy(self.output.weight, kernels["output"].reshape(-1, d_model).T)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor,
        attend: Callable[..., Tensor],
        dropout: float,
    ) -> Tensor:
        """Let x [B, Q, d_model] attend to `memory` [B, K, d_model] by `attend`."""
        if self.is_self:
            projected = self.inputs(x).split(self.widths, dim=-1)
        else:
            weights = self.inputs.weight.split([self.widths[0], sum(self.widths[1:])])
            keys_values = F.linear(memory, weights[1]).split(self.widths[1:], dim=-1)
            projected = (F.linear(x, weights[0]), *keys_values)
        heads = [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in projected]
        attended = attend(*heads, mask, dropout)  # [B, H, Q, d_v]
        return self.output(attended.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """An encoder's or a decoder's layer, post-norm."""

    def __init__(self, params: Arrays) -> None:
        """Copy our parameters of this layer, named such as "self_attention/query/kernel"."""
        super().__init__()
        attentions = [name for name in ATTENTION_NAMES if f"{name}/query/kernel" in params]
        self.attentions = nn.ModuleDict(
            {
                name: Attention(
                    {kind: params[f"{name}/{kind}/kernel"] for kind in KERNELS},
                    is_self=name == "self_attention",
                )
                for name in attentions
            }
        )
        d_model, d_ff = params["feed_forward/inner/kernel"].shape
        self.inner, self.outer = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        for name, linear in (("inner", self.inner), ("outer", self.outer)):
            _copy(linear.weight, params[f"feed_forward/{name}/kernel"].T)
            _copy(linear.bias, params[f"feed_forward/{name}/bias"])
        self.norms = nn.ModuleDict()
        for name in [*attentions, "feed_forward"]:
            norm = nn.LayerNorm(d_model, EPSILON)
            _copy(norm.weight, params[f"{name}_norm/norm/scale"])
            _copy(norm.bias, params[f"{name}_norm/norm/bias"])
            self.norms[name] = norm

    def forward(
        self, x: Tensor, mask: Tensor, memory: Tensor, memory_mask: Tensor, model: "TorchModel"
    ) -> Tensor:
        """Apply each sub-layer, dropout, sum and norm; `model` has the attention and the rates."""
        for name, attention in self.attentions.items():
            keys, seen = (x, mask) if name == "self_attention" else (memory, memory_mask)
            attended = attention(x, keys, seen, model.attend, model.attention_dropout)
            x = self.norms[name](x + F.dropout(attended, model.dropout, model.dropout > 0))
        fed = self.outer(F.relu(self.inner(x)))
        return self.norms["feed_forward"](x + F.dropout(fed, model.dropout, model.dropout > 0))


class TorchModel(nn.Module):
    """Our model with tied embeddings and sinusoids; its sizes are those of the parameters."""

    def __init__(self, params: Arrays, pad_id: int, length: int) -> None:
        """Copy our parameters, given by name. Dropout is off until it is set.

        length: the maximum number of positions. Raises InputError for other parameters than these.
        """
        super().__init__()
        self.pad_id, self.dropout, self.attention_dropout = pad_id, 0.0, 0.0
        self.attend: Callable[..., Tensor] = fused_attention
        matrix = params["embedding/matrix"]
        self.embedding = nn.Embedding(*matrix.shape)
        _copy(self.embedding.weight, matrix)
        self.encoder, self.decoder = (_layers(params, side) for side in ("encoder", "decoder"))
        more = sum(a.size for a in params.values()) - sum(p.numel() for p in self.parameters())
        if more:
            raise InputError(
                f"expected a model whose parameters PyTorch's has, found {more:,} more; leave out "
                "the settings that the PyTorch model does not have"
            )
        self.register_buffer("positions", _sinusoids(length, matrix.shape[1]), persistent=False)
        self.register_buffer("causal", torch.ones(length, length, dtype=torch.bool).tril())

    def _embed(self, tokens: Tensor) -> Tensor:
        scaled = self.embedding(tokens) * self.embedding.embedding_dim**0.5
        embedded = scaled + self.get_buffer("positions")[: tokens.shape[1]]
        return F.dropout(embedded, self.dropout, self.dropout > 0)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return logits [B, T, V] of the token after each of `target`, which starts with BOS."""
        real = (source != self.pad_id)[:, None, None, :]
        memory = self._embed(source)
        for layer in self.encoder:
            memory = layer(memory, real, memory, real, self)
        causal = self.get_buffer("causal")[: target.shape[1], : target.shape[1]]
        hidden = self._embed(target)
        for layer in self.decoder:
            hidden = layer(hidden, causal, memory, real, self)
        return F.linear(hidden, self.embedding.weight)


def smoothed_loss(logits: Tensor, target: Tensor, label_smoothing: float, pad_id: int) -> Tensor:
    """Return our loss: eps / (V - 1) off the target, less its entropy; a mean over real tokens.

    PyTorch spreads its epsilon over all V tokens, the right one too, so its epsilon is larger.
    """
    size = logits.shape[-1]
    off = label_smoothing / (size - 1)
    on = 1 - label_smoothing
    entropy = -on * math.log(on) - (label_smoothing * math.log(off) if off else 0.0)
    mean = F.cross_entropy(
        logits.flatten(0, 1), target.flatten(), ignore_index=pad_id, label_smoothing=off * size
    )
    return mean - entropy


def _layers(params: Arrays, side: str) -> nn.ModuleList:
    count = len({name.split("/")[0] for name in params if re.match(rf"{side}_\d", name)})
    return nn.ModuleList(
        Layer(
            {
                name.removeprefix(f"{side}_{i}/"): array
                for name, array in params.items()
                if name.startswith(f"{side}_{i}/")
            }
        )
        for i in range(count)
    )


def _sinusoids(length: int, d_model: int) -> Tensor:
    """Return the sines and cosines [length, d_model] of §3.5."""
    angles = np.arange(length)[:, None] * 10000.0 ** (-np.arange(0, d_model, 2) / d_model)
    encoding = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, d_model)
    return torch.tensor(encoding, dtype=torch.float32)


def _copy(parameter: Tensor, array: np.ndarray) -> None:
    with torch.no_grad():
        parameter.copy_(torch.tensor(np.ascontiguousarray(array)))
