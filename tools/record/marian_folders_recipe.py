"""Folders of Hugging Face's MarianMTModel as OPUS-MT publishes them, small, and their results.

The models are trained for a moment on the sentences of the demo, so that outputs vary and end.
"""

import copy
import functools
import io
import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch  # pyright: ignore[reportMissingImports]
import transformers  # pyright: ignore[reportMissingImports]
from safetensors.torch import save_file  # pyright: ignore[reportMissingImports]

from jax_transformer.demo import sentence_pairs

torch.set_num_threads(1)  # products are so small that several threads are slower

TAGS = [">>fra<<", ">>deu<<"]
STEPS, BATCH = 250, 64
LONGEST = 24  # tokens of a source or target
LIMIT = 40  # tokens of an output


@dataclass(frozen=True)
class Trained:
    """The settings of the model that is trained: swish, one vocabulary, 2 + 1 layers."""

    d_model: int = 32
    d_ff: int = 64
    pieces: int = 300  # of each language
    normalization: str = "nmt_nfkc"


@dataclass(frozen=True)
class Kind:
    """A folder: a trained model, what is changed in it, and how it is saved."""

    trained: Trained = Trained()
    activation: str = "swish"
    encoder_layers: int = 2
    vocabularies: int = 1
    matrices: int = 1  # 2: the source has its own; 3: the output too
    rows: int = 1  # the rows of the matrix are a multiple of this
    own_positions: bool = False
    dtype: str = "float32"
    rounded: bool = False  # to bfloat16, so that a float32 file can be compressed
    file: str = "safetensors"  # or `zip` or `older`, the two forms of torch.save


KINDS = {
    "swish": Kind(),
    "relu, two vocabularies": Kind(activation="relu", vocabularies=2, matrices=2),
    "gelu, untied, as deep": Kind(activation="gelu", vocabularies=2, matrices=3, encoder_layers=1),
    "float16, torch.save": Kind(dtype="float16", file="zip"),
    "bfloat16, older torch.save, more rows": Kind(dtype="bfloat16", file="older", rows=16),
    "own positions, own source matrix": Kind(own_positions=True, matrices=2),
    "one vocabulary, untied": Kind(file="zip", matrices=3),
}
# Those in the record are smaller.
TRAINED = Trained(d_model=16, d_ff=16, pieces=90, normalization="identity")
RECORDED = {
    "swish": Kind(TRAINED, file="zip", rounded=True),
    "relu": Kind(
        TRAINED, activation="relu", vocabularies=2, matrices=2, file="older", rounded=True
    ),
    "gelu": Kind(
        TRAINED,
        activation="gelu",
        matrices=3,
        rows=16,
        own_positions=True,
        dtype="float16",
        file="zip",
    ),
}
LINES = 40  # of the record
ODD = [
    (">>fra<< The dog sleeps.", "Der Hund schl\u00e4ft."),
    (">>deu<<a \u6f22 b", "\u00c4 \u6f22\u5b57"),
    ("a\tb\u00a0c", "caf\u00e9"),
]


@dataclass(frozen=True)
class Side:
    """The vocabulary of one side."""

    model: bytes  # of sentencepiece
    pieces: list[str]
    table: dict[str, int]  # of both sides

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, with EOS."""
        processor = _processor(self.model)
        return [self.table.get(piece, 1) for piece in processor.encode(text, out_type=str)] + [0]


def make_folder(kind: Kind, folder: Path) -> None:
    """Write a folder with everything that `from_pretrained` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    model, sides = _trained(kind.trained)
    tables = _tables(kind, sides)
    model = _changed(model, kind, [list(table.values()) for table in tables])
    pad = model.config.pad_token_id
    model.generation_config.update(bad_words_ids=[[pad]], num_beams=4, max_length=64)
    model.generation_config.renormalize_logits = True  # as OPUS-MT has it
    model.save_pretrained(folder)
    _save_weights(model, kind, folder)
    for name, side in zip(("source", "target"), sides, strict=True):
        (folder / f"{name}.spm").write_bytes(side.model)
    tokenizer: dict[str, Any] = {"source_lang": "en", "target_lang": "fi", "model_max_length": 32}
    if kind.vocabularies == 2:
        tokenizer["separate_vocabs"] = True
    for name, table in zip(("vocab", "target_vocab"), tables[: kind.vocabularies], strict=False):
        _write_json(folder / f"{name}.json", {piece: i for i, piece in enumerate(table)})
    _write_json(folder / "tokenizer_config.json", tokenizer)


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def _save_weights(model: Any, kind: Kind, folder: Path) -> None:
    """Replace what save_pretrained has written if it is to be another file."""
    safe = folder / "model.safetensors"
    tensors = model.state_dict()  # with all copies of tied matrices, and with positions
    if kind.file != "safetensors":
        safe.unlink()
        zipped = kind.file == "zip"
        path = folder / "pytorch_model.bin"
        torch.save(tensors, path, _use_new_zipfile_serialization=zipped)
    elif kind.own_positions:  # save_pretrained leaves them out
        safe.unlink()
        tensors.pop("lm_head.weight")
        save_file(tensors, safe, metadata={"format": "pt"})


def _tables(kind: Kind, sides: Sequence[Side]) -> list[dict[str, int]]:
    """Return the table of each side: pieces with their rows in the trained matrix."""
    table = sides[0].table
    if kind.vocabularies == 1:
        return [table, table]
    special = ["</s>", "<unk>", *TAGS]
    own = [{p: table[p] for p in (*special, *side.pieces)} for side in sides]
    size = min(map(len, own))  # both need <pad> at one place
    return [dict([*list(pieces.items())[:size], ("<pad>", table["<pad>"])]) for pieces in own]


def _changed(model: Any, kind: Kind, rows: Sequence[list[int]]) -> Any:
    """Return a copy of the trained model with what `kind` changes.

    rows: the rows of the matrix that source and target take.
    """
    rows = [[*own, *[own[-1]] * (-len(own) % kind.rows)] for own in rows]
    settings = {
        **model.config.to_dict(),
        "activation_function": kind.activation,
        "encoder_layers": kind.encoder_layers,
        "share_encoder_decoder_embeddings": kind.vocabularies == 1 and kind.matrices != 2,
        "tie_word_embeddings": kind.matrices < 3,
        "vocab_size": len(rows[0]),
        "decoder_vocab_size": len(rows[1]),
    }
    for name in ("pad_token_id", "decoder_start_token_id"):
        settings[name] = rows[0].index(settings[name])
    changed = transformers.MarianMTModel(transformers.MarianConfig(**settings)).eval()
    before, generator = model.state_dict(), torch.Generator().manual_seed(5)
    noisy = ("encoder.embed_tokens", "lm_head")[: max(kind.matrices - 1, 0)]
    with torch.no_grad():
        for name, tensor in changed.state_dict().items():
            given = before[name]
            if name == "final_logits_bias":
                given = given[:, rows[1]]
            elif name.endswith(("embed_tokens.weight", "shared.weight", "lm_head.weight")):
                given = given[rows[0 if "encoder" in name else 1]]
            tensor.copy_(given)
            if any(part in name for part in noisy):
                tensor += 0.05 * torch.randn(tensor.shape, generator=generator)
        if kind.own_positions:
            tables = positions(changed)
            noise = 0.05 * torch.randn(tables[0].shape, generator=generator)
            for table in tables:
                table += noise
    changed.generation_config = copy.deepcopy(changed.generation_config)
    if kind.rounded:
        changed = changed.to(torch.bfloat16)
    return changed.to(getattr(torch, kind.dtype))


@functools.cache
def _trained(settings: Trained) -> tuple[Any, list[Side]]:
    """Return a model that has been trained for STEPS steps, and its two vocabularies."""
    pairs = sentence_pairs("train")[:4000]
    sides = _vocabularies(pairs, settings)
    model = _random_model(settings, len(sides[0].table))
    pad = model.config.pad_token_id
    encoded = [[side.encode(text) for side, text in zip(sides, pair)] for pair in pairs]  # noqa: B905
    encoded = [pair for pair in encoded if max(map(len, pair)) <= LONGEST]
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=0.006, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / 20) * (1 - step / STEPS)
    )
    random = np.random.default_rng(3)
    for _ in range(STEPS):
        batch = [encoded[i] for i in random.integers(len(encoded), size=BATCH)]
        source, target = (padded(rows, fill) for rows, fill in zip(zip(*batch), (pad, -100)))  # noqa: B905
        mask = (source != pad).long()
        model(input_ids=source, attention_mask=mask, labels=target).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    with torch.no_grad():  # the decoder starts with zeros, as Marian itself does
        model.model.shared.weight[pad] = 0
    return model, sides


def _vocabularies(pairs: Sequence[tuple[str, str]], settings: Trained) -> list[Side]:
    models = [_learn(text, settings) for text in zip(*pairs, strict=True)]
    own = []
    for processor in map(_processor, models):
        pieces = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
        own.append([piece for piece in pieces if piece not in ("</s>", "<unk>", "<s>")])
    table = dict.fromkeys(["</s>", "<unk>", *TAGS, *own[0], *own[1], "<pad>"])
    numbered = {piece: index for index, piece in enumerate(table)}
    return [Side(model, pieces, numbered) for model, pieces in zip(models, own, strict=True)]


def _learn(text: Iterable[str], settings: Trained) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text),
        model_writer=model,
        vocab_size=settings.pieces,
        hard_vocab_limit=False,
        character_coverage=1.0,
        normalization_rule_name=settings.normalization,
        minloglevel=2,
    )
    return model.getvalue()


@functools.cache
def _processor(model: bytes) -> sentencepiece.SentencePieceProcessor:
    processor = sentencepiece.SentencePieceProcessor()
    processor.load_from_serialized_proto(model)
    return processor


def _random_model(settings: Trained, pieces: int) -> Any:
    pad = pieces - 1
    config = transformers.MarianConfig(
        vocab_size=pieces,
        d_model=settings.d_model,
        encoder_layers=2,
        decoder_layers=1,
        encoder_ffn_dim=settings.d_ff,
        decoder_ffn_dim=settings.d_ff,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        activation_function="swish",
        scale_embedding=True,
        pad_token_id=pad,
        decoder_start_token_id=pad,
        max_position_embeddings=64,
    )
    torch.manual_seed(4)
    model = transformers.MarianMTModel(config).eval()  # without dropout
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.ndim == 2:
                parameter.normal_(std=parameter.shape[1] ** -0.5)
        model.final_logits_bias.normal_(std=0.3)
        model.final_logits_bias[0, pad] = 0
    return model


def padded(rows: Iterable[Sequence[int]], fill: int) -> Any:
    """Return the rows as a tensor, with `fill` after their ends."""
    rows = list(rows)
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[fill] * (longest - len(row))] for row in rows])


def positions(model: Any) -> list[Any]:
    """Return the position tables of encoder and decoder."""
    return [stack.embed_positions.weight for stack in (model.get_encoder(), model.get_decoder())]


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


def record() -> dict[str, Any]:
    """Return the files of each folder, and transformers' results as JSON."""
    recorded: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name, kind in RECORDED.items():
            folder = Path(temporary, name)
            make_folder(kind, folder)
            for path in folder.iterdir():
                recorded[f"{name}/{path.name}"] = path.read_bytes()
            recorded[f"results/{name}"] = json.dumps(results(Original(folder)))
    return recorded


def results(original: Original) -> dict[str, Any]:
    """Return lines, their ids, log P of each pair, and the best outputs of three searches."""
    tokenizer, pairs = original.tokenizer, []
    for source, target in [*ODD, *sentence_pairs("dev")]:
        ids = tokenizer(source).input_ids, tokenizer(text_target=target).input_ids
        if max(map(len, ids)) <= LONGEST:
            pairs.append((source, target, *ids))
    sources, targets, source_ids, target_ids = map(list, zip(*pairs[:LINES], strict=True))
    outputs = {
        "greedy": original.search(source_ids, num_beams=1),
        "beam": original.search(source_ids, num_beams=4, early_stopping="never"),
        "beam, first four": original.search(source_ids, num_beams=4, early_stopping=True),
    }
    return {
        "sources": sources,
        "targets": targets,
        "source_ids": source_ids,
        "target_ids": target_ids,
        "log_probs": original.log_probs(source_ids, target_ids).tolist(),
        "outputs": outputs,
        "texts": tokenizer.batch_decode(outputs["greedy"], skip_special_tokens=True),
    }
