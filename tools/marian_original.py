"""Folders of Hugging Face's MarianMTModel as transformers runs them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
import transformers  # pyright: ignore[reportMissingImports]

from tools.marian_folders import padded, positions

LIMIT = 40  # tokens of an output


class Original:
    """A folder as transformers runs it, in float32."""

    def __init__(self, folder: Path) -> None:
        """Load the model and its tokenizer."""
        self.tokenizer: Any = transformers.MarianTokenizer.from_pretrained(folder)
        self.model: Any = transformers.MarianMTModel.from_pretrained(
            folder, dtype=torch.float32
        ).eval()
        self.pad = self.model.config.pad_token_id
        exact = transformers.MarianMTModel(self.model.config)
        for ours, theirs in zip(positions(self.model), positions(exact), strict=True):
            if torch.allclose(ours, theirs, atol=0.003):
                ours.data.copy_(theirs)  # torch.save has rounded it to float16 or bfloat16

    def logits(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> Any:
        """Return the logits of each target token, with those of <pad> at the lowest number.

        Our bias for <pad> does the same, since `generate` never writes it. transformers takes it
        into the sum of all probabilities unless renormalize_logits is set.
        """
        inputs = [[self.pad, *target[:-1]] for target in targets]
        with torch.no_grad():
            logits = self.model(
                **self._batch(sources), decoder_input_ids=padded(inputs, self.pad)
            ).logits
        logits[..., self.pad] = torch.finfo(torch.float32).min
        return logits

    def log_probs(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> np.ndarray:
        """Return log P of each target, EOS included."""
        logs = self.logits(sources, targets).log_softmax(-1).double()
        rows = [
            row[torch.arange(len(ids)), torch.tensor(ids)].sum()
            for row, ids in zip(logs, targets, strict=True)
        ]
        return torch.stack(rows).numpy()

    def search(self, sources: Sequence[list[int]], **settings: Any) -> list[list[int]]:
        """Return the best output of each source, with EOS unless it has LIMIT tokens."""
        found = self.model.generate(
            **self._batch(sources), max_length=None, max_new_tokens=LIMIT, **settings
        )
        return [until_eos(row) for row in found[:, 1:].tolist()]

    def _batch(self, sources: Sequence[list[int]]) -> dict[str, Any]:
        source = padded(sources, self.pad)
        lengths = torch.tensor([len(row) for row in sources])[:, None]
        return {
            "input_ids": source,
            "attention_mask": (torch.arange(source.shape[1])[None] < lengths).long(),
        }


def until_eos(row: Sequence[int]) -> list[int]:
    """Return what comes before the first EOS, which is 0, and this EOS."""
    return list(row[: row.index(0) + 1]) if 0 in row else list(row)
