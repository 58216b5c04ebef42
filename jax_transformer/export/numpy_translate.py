"""Translate with a model exported as safetensors, on NumPy alone: greedy search, one CPU.

python translate.py < source > translations

`experiments.export --format=safetensors` puts this file into the folder of the model. It needs
numpy, safetensors and sentencepiece, and nothing of the package that it came with. Sections
are those of "Attention Is All You Need".
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from safetensors.numpy import load_file

KeysValues = tuple[np.ndarray, np.ndarray]


class Model:
    """A model for one sentence at a time, without padding; arrays lack a batch axis."""

    def __init__(self, folder: Path) -> None:
        """Read the files that the export wrote."""
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
        self.settings: dict[str, Any] = self.config["model"]
        self.arrays = load_file(folder / "model.safetensors")
        self.pieces = sentencepiece.SentencePieceProcessor()
        self.pieces.Load(str(folder / "vocabulary.model"))

    def translate(self, line: str) -> str:
        """Return the greedy translation of a line; blank for blank."""
        line = line.replace("\r", " ").replace("\n", " ")
        if line.isspace():
            return ""
        ids = self.pieces.EncodeAsIds(line)[: self.config["max_length"] - 1]
        if not ids:
            return ""
        return self.pieces.DecodeIds(self.greedy([*ids, self.config["eos_id"]])[:-1])

    def greedy(self, source: list[int]) -> list[int]:
        """Return the likeliest token of every step, up to EOS or the length limit (§6.1)."""
        memory, cache = self.encode(source), self.empty_cache()
        tokens, longest = [], len(source) + self.config["max_extra_length"]
        last = self.config["bos_id"]
        while last != self.config["eos_id"]:
            logits = self.decode([last], memory, cache)[0]
            at_limit = len(tokens) + 1 == longest
            last = self.config["eos_id"] if at_limit else int(logits.argmax())
            tokens.append(last)
        return tokens

    def log_probabilities(self, source: list[int], target: list[int]) -> np.ndarray:
        """Return log P of each token of the target, in nats; both sides end with EOS."""
        inputs = [self.config["bos_id"], *target[:-1]]
        logits = self.decode(inputs, self.encode(source), self.empty_cache())
        highest = logits.max(axis=1, keepdims=True)
        normalizer = highest[:, 0] + np.log(np.exp(logits - highest).sum(axis=1))
        return logits[np.arange(len(target)), target] - normalizer

    def encode(self, source: list[int]) -> list[KeysValues]:
        """Run the encoder (§3.1); return its output's keys and values for each decoder layer."""
        x = self.embed("embedding", source, 0)
        every = np.arange(len(source))
        for i in range(self.settings["num_layers"]):
            layer = f"encoder_{i}/"
            past = self.keys_values(layer + "self_attention", x)
            x = self.attend(layer + "self_attention", x, past, self.near(every, every))
            x = self.feed_forward(layer, x)
        layers = range(self.settings["num_layers"])
        return [self.keys_values(f"decoder_{i}/cross_attention", x) for i in layers]

    def empty_cache(self) -> list[KeysValues]:
        """Return keys and values without positions, [0, H, d], for each decoder layer."""
        heads, d_k, d_v = (self.settings[name] for name in ("num_heads", "d_k", "d_v"))
        empty = (np.zeros((0, heads, d_k), np.float32), np.zeros((0, heads, d_v), np.float32))
        return [empty] * self.settings["num_layers"]

    def decode(
        self, tokens: list[int], memory: list[KeysValues], cache: list[KeysValues]
    ) -> np.ndarray:
        """Return logits [T, V] after each of the tokens, which follow those of the cache (§3.1)."""
        tied = self.settings["tie_embeddings"]
        start = len(cache[0][0])
        x = self.embed("embedding" if tied else "target_embedding", tokens, start)
        queries, keys = start + np.arange(len(tokens)), np.arange(start + len(tokens))
        mask = self.near(queries, keys) & (keys <= queries[:, None])
        for i, (past, encoded) in enumerate(zip(cache, memory, strict=True)):
            layer = f"decoder_{i}/"
            here = self.keys_values(layer + "self_attention", x)
            cache[i] = (np.concatenate([past[0], here[0]]), np.concatenate([past[1], here[1]]))
            x = self.attend(layer + "self_attention", x, cache[i], mask)
            x = self.attend(layer + "cross_attention", x, encoded, None)
            x = self.feed_forward(layer, x)
        return x @ self.arrays[f"{'embedding' if tied else 'output_embedding'}/matrix"].T

    def embed(self, name: str, tokens: list[int], start: int) -> np.ndarray:
        """Return embeddings times sqrt(d_model), plus position encodings from `start` (§3.4-5)."""
        d_model = self.settings["d_model"]
        positions = np.arange(start, start + len(tokens))
        if self.settings["positions"] == "learned":
            encoding = self.arrays["position_table"][positions]
        else:
            angles = positions[:, None] / 10000.0 ** (np.arange(0, d_model, 2) / d_model)
            encoding = np.stack([np.sin(angles), np.cos(angles)], axis=-1)  # [T, d_model / 2, 2]
            encoding = encoding.reshape(len(tokens), d_model).astype(np.float32)
        return self.arrays[f"{name}/matrix"][tokens] * np.float32(d_model**0.5) + encoding

    def near(self, queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """Return a mask of the keys within reach: all, or those of a neighbourhood (Table 1)."""
        distance = np.abs(queries[:, None] - keys)
        radius = self.settings["attention_radius"]
        return distance <= radius if radius else distance >= 0

    def keys_values(self, name: str, x: np.ndarray) -> KeysValues:
        """Return K W^K and V W^V of each head (§3.2.2)."""
        return self.project(f"{name}/key", x), self.project(f"{name}/value", x)

    def project(self, name: str, x: np.ndarray) -> np.ndarray:
        """Apply a linear map: [T, d_model] -> [T, H, d]."""
        kernel = self.arrays[f"{name}/kernel"]
        made = (x @ kernel.reshape(len(kernel), -1)).reshape(-1, *kernel.shape[1:])
        return made + self.arrays.get(f"{name}/bias", np.float32(0))

    def attend(
        self, name: str, x: np.ndarray, keys_values: KeysValues, mask: np.ndarray | None
    ) -> np.ndarray:
        """Apply multi-head attention and Add & Norm (§3.2)."""
        keys, values = keys_values
        queries = self.project(f"{name}/query", x) / np.float32(keys.shape[-1] ** 0.5)
        scores = np.einsum("qhd,khd->hqk", queries, keys)
        if mask is not None:
            scores = np.where(mask, scores, np.float32(-np.inf))
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        attended = np.einsum("hqk,khd->qhd", weights, values).reshape(len(x), -1)
        kernel = self.arrays[f"{name}/output/kernel"]  # [H, d_v, d_model]
        made = attended @ kernel.reshape(-1, kernel.shape[-1])
        made = made + self.arrays.get(f"{name}/output/bias", np.float32(0))
        return self.norm(f"{name}_norm/norm", x + made)

    def feed_forward(self, layer: str, x: np.ndarray) -> np.ndarray:
        """Apply max(0, x W_1 + b_1) W_2 + b_2 and Add & Norm (§3.3)."""
        name = f"{layer}feed_forward"
        inner = x @ self.arrays[f"{name}/inner/kernel"] + self.arrays[f"{name}/inner/bias"]
        outer = np.maximum(inner, 0) @ self.arrays[f"{name}/outer/kernel"]
        return self.norm(f"{name}_norm/norm", x + outer + self.arrays[f"{name}/outer/bias"])

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        """Apply layer normalization, with epsilon 1e-6 inside the root."""
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(1e-6))
        return scaled * self.arrays[f"{name}/scale"] + self.arrays[f"{name}/bias"]


def main() -> None:
    """Write the translation of each line of standard input."""
    model = Model(Path(__file__).parent)
    for line in sys.stdin.buffer:
        text = line.decode("utf-8", errors="replace").removesuffix("\n")
        sys.stdout.buffer.write(f"{model.translate(text)}\n".encode())
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
