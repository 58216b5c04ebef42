"""Folders of fairseq and FSMT with small random models, and what the two programs compute."""

import argparse
import copy
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from fairseq.data import Dictionary  # pyright: ignore[reportMissingImports]
from fairseq.dataclass.utils import (  # pyright: ignore[reportMissingImports]
    convert_namespace_to_omegaconf,
)
from fairseq.models.transformer import TransformerModel  # pyright: ignore[reportMissingImports]
from fairseq.sequence_generator import (  # pyright: ignore[reportMissingImports]
    SequenceGenerator,
)
from fairseq.tasks.translation import TranslationTask  # pyright: ignore[reportMissingImports]
from omegaconf import OmegaConf  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from transformers import (  # pyright: ignore[reportMissingImports]
    FSMTConfig,
    FSMTForConditionalGeneration,
)

Arrays = dict[str, np.ndarray]

PAD, EOS = 1, 2
EXTRA = 6  # tokens that an output may have beyond those of its source
SEED = 3
STEPS = 700
CODES = "#version: 0.2\nl o\nlo w\n"
SIZES = {"width": 16, "inner": 20, "heads": 2, "layers": 1, "pieces": 48}
LARGER = {"width": 32, "inner": 64, "heads": 4, "layers": 2, "pieces": 300}

FAIRSEQ: dict[str, dict[str, Any]] = {
    # As Ott et al. 2018, in a file of argparse.
    "fairseq_shared": {"share_all_embeddings": True},
    # All that may differ, in a file of hydra and of torch before 1.6.
    "fairseq_pre": {
        "encoder_normalize_before": True,
        "decoder_normalize_before": True,
        "activation_fn": "gelu",
        "decoder_layers": 2,
        "two": True,
        "hydra": True,
        "zip": False,
    },
    # With the names of 2018.
    "fairseq_old": {
        "share_decoder_input_output_embed": True,
        "no_scale_embedding": True,
        "decoder_ffn_embed_dim": 40,
        "half": True,
        "old": True,
    },
}
FSMT: dict[str, dict[str, Any]] = {
    # As WMT19's: two vocabularies, target and output tied by their values.
    "fsmt_two": {"two": True, "equal": True},
    "fsmt_tied": {"tie_word_embeddings": True, "activation_function": "swish", "encoder_layers": 2},
    "fsmt_apart": {"activation_function": "gelu", "bin": True, "decoder_ffn_dim": 40},
}


def pieces(count: int, salt: str) -> list[str]:
    """Return pieces of a vocabulary; with the same salt the same ones."""
    return ["lo@@", "low", *(f"{salt}{i}" for i in range(count - 2))]


def train(model: nn.Module, log_probs: Any, sizes: tuple[int, int]) -> None:
    """Train a model a little, so that outputs differ and end: it writes a text's tokens backwards.

    The weights become multiples of 1/32, which every type holds, and few bytes when compressed.
    """
    torch.manual_seed(SEED)
    parameters = [tensor for name, tensor in model.named_parameters() if "positions" not in name]
    optimizer = torch.optim.Adam(parameters, lr=4e-3, betas=(0.9, 0.98))
    for step in range(STEPS):
        source, _ = drawn_pairs(64, sizes, seed=step + 100)
        target = torch.tensor(backwards(source, sizes[1]))
        optimizer.zero_grad()
        loss = -log_probs(model, torch.tensor(source), target)[target != PAD].mean()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        for parameter in parameters:
            parameter.copy_((parameter * 32).round() / 32)


def backwards(source: np.ndarray, size: int) -> np.ndarray:
    """Return the tokens of each row but EOS from the last to the first, as ids below `size`."""
    target = np.full_like(source, PAD)
    for row, ids in zip(target, source, strict=True):
        length = int((ids != PAD).sum())
        row[: length - 1] = 4 + (ids[: length - 1][::-1] - 4) % (size - 4)
        row[length - 1] = EOS
    return target


# ---- fairseq ----------------------------------------------------------------------------------


def build_fairseq(options: dict[str, Any], sizes: dict[str, int]) -> tuple[Any, Any, Any]:
    """Return a random model of fairseq, its task and its settings."""
    flags = {"two", "hydra", "zip", "half", "old"}
    settings = argparse.Namespace(
        arch="transformer",
        task="translation",
        source_lang="en",
        target_lang="de",
        encoder_embed_dim=sizes["width"],
        encoder_ffn_embed_dim=sizes["inner"],
        encoder_layers=sizes["layers"],
        encoder_attention_heads=sizes["heads"],
        decoder_attention_heads=sizes["heads"],
        max_source_positions=256,
        max_target_positions=256,
        dropout=0.1,
        **{"decoder_layers": sizes["layers"]}
        | {name: value for name, value in options.items() if name not in flags},
    )
    dictionaries = []
    for salt in ("a", "b" if options.get("two") else "a"):
        dictionary = Dictionary()
        for piece in pieces(sizes["pieces"] + 8 * (salt == "b"), salt):
            dictionary.add_symbol(piece)
        dictionary.pad_to_multiple_(8)
        dictionaries.append(dictionary)
    task = TranslationTask(settings, *dictionaries)
    model: Any = TransformerModel.build_model(settings, task).eval()
    source, target = dictionaries
    train(model, fairseq_log_probs, (len(source), len(target)))
    return model, task, settings


def save_fairseq(built: tuple[Any, Any, Any], options: dict[str, Any], folder: Path) -> None:
    """Write the model as fairseq does, in one of the forms that it has had."""
    model, task, settings = built
    arrays = model.state_dict()
    if options.get("half"):
        arrays = {name: array.half() for name, array in arrays.items()}
    state = {"args": settings, "model": arrays, "extra_state": {"epoch": 1}}
    if options.get("old"):
        state["model"] = old_names(arrays)
    if options.get("hydra"):
        settings = convert_namespace_to_omegaconf(copy.deepcopy(settings))
        state |= {"args": None, "cfg": OmegaConf.to_container(settings, resolve=True)}
    torch.save(state, folder / "model.pt", _use_new_zipfile_serialization=options.get("zip", True))
    task.source_dictionary.save(str(folder / "dict.en.txt"))
    task.target_dictionary.save(str(folder / "dict.de.txt"))
    (folder / "bpecodes").write_text(CODES, encoding="utf-8")


def old_names(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays as fairseq named them in 2018."""
    found = dict(arrays)
    norms = {
        "encoder": ["self_attn", "final"],
        "decoder": ["self_attn", "encoder_attn", "final"],
    }
    for name in arrays:
        stack, *_ = name.split(".")
        if "q_proj" in name:
            whole = name.replace("q_proj.", "in_proj_")
            parts = [name.replace("q_proj", f"{letter}_proj") for letter in "qkv"]
            found[whole] = torch.cat([found.pop(part) for part in parts])
        for number, kind in enumerate(norms.get(stack, [])):
            if f".{kind}_layer_norm." in name:
                renamed = name.replace(f"{kind}_layer_norm", f"layer_norms.{number}")
                found[renamed] = found.pop(name)
    del found["decoder.output_projection.weight"]  # tied
    found["encoder.embed_positions._float_tensor"] = torch.zeros(1)
    return found


def fairseq_log_probs(model: Any, source: Any, target: Any) -> Any:
    """Return log P of each target token, [B, T]; both sides end with EOS, then PAD."""
    start = torch.full_like(target[:, :1], EOS)
    inputs = torch.cat([start, target[:, :-1]], dim=1)
    logits, _ = model(source, (source != PAD).sum(1), inputs)
    return logits.log_softmax(-1).gather(-1, target[:, :, None])[:, :, 0]


def fairseq_outputs(built: tuple[Any, Any, Any], source: Any, beam: int) -> list[list[int]]:
    """Return the best output of each source, with EOS. All sources are of one length."""
    model, task, _ = built
    limits = {"max_len_a": 1, "max_len_b": EXTRA - 1}  # and EOS
    generator = SequenceGenerator([model], task.target_dictionary, beam_size=beam, **limits)
    lengths = (source != PAD).sum(1)
    sample = {"net_input": {"src_tokens": source, "src_lengths": lengths}}
    return [found[0]["tokens"].tolist() for found in generator.generate([model], sample)]


# ---- FSMT -------------------------------------------------------------------------------------


def build_fsmt(options: dict[str, Any], sizes: dict[str, int]) -> Any:
    """Return a random model of Hugging Face's FSMT."""
    flags = {"two", "equal", "bin"}
    count = sizes["pieces"] + 8
    settings = {
        "langs": ["en", "de"],
        "src_vocab_size": count,
        "tgt_vocab_size": count - 8 * bool(options.get("two")),
        "d_model": sizes["width"],
        "max_position_embeddings": 40,
        "num_beams": 4,
        "max_length": 20,
        "init_std": 0.2,
        **{name: value for name, value in options.items() if name not in flags},
    }
    for stack in ("encoder", "decoder"):
        settings.setdefault(f"{stack}_layers", sizes["layers"])
        settings.setdefault(f"{stack}_ffn_dim", sizes["inner"])
        settings[f"{stack}_attention_heads"] = sizes["heads"]
    model = FSMTForConditionalGeneration(FSMTConfig(**settings)).eval()
    decoder = model.model.decoder
    if options.get("equal"):
        decoder.output_projection.weight = decoder.embed_tokens.weight
    train(model, fsmt_log_probs, (settings["src_vocab_size"], settings["tgt_vocab_size"]))
    return model


def save_fsmt(model: Any, options: dict[str, Any], folder: Path) -> None:
    """Write the model and its vocabularies as Hugging Face does."""
    model.save_pretrained(folder)
    if options.get("bin"):
        (folder / "model.safetensors").unlink()
        halves = {name: array.half() for name, array in model.state_dict().items()}
        torch.save(halves, folder / "pytorch_model.bin")
    config = model.config
    for side, size, salt in (
        ("src", config.src_vocab_size, "a"),
        ("tgt", config.tgt_vocab_size, "b" if options.get("two") else "a"),
    ):
        names = ["<s>", "<pad>", "</s>", "<unk>", "lo", *pieces(size - 4, salt)[1:]]
        ids = {name: i for i, name in enumerate(names)}
        (folder / f"vocab-{side}.json").write_text(json.dumps(ids), encoding="utf-8")
    (folder / "merges.txt").write_text("l o\nlo w</w>\n", encoding="utf-8")


def fsmt_log_probs(model: Any, source: Any, target: Any) -> Any:
    """Return log P of each target token, [B, T]; both sides end with EOS, then PAD."""
    start = torch.full_like(target[:, :1], EOS)
    inputs = torch.cat([start, target[:, :-1]], dim=1)
    mask = (source != PAD).long()
    found = model(source, attention_mask=mask, decoder_input_ids=inputs, use_cache=False)
    return found.logits.log_softmax(-1).gather(-1, target[:, :, None])[:, :, 0]


def fsmt_outputs(model: Any, source: Any, beam: int) -> list[list[int]]:
    """Return the best output of each source, with EOS. All sources are of one length."""
    limit = source.shape[1] + EXTRA
    search = {"num_beams": beam, "max_length": None, "max_new_tokens": limit, "do_sample": False}
    if beam > 1:
        search["early_stopping"] = True
    found = model.generate(source, attention_mask=torch.ones_like(source), **search)
    return [cut(row) for row in found[:, 1:].tolist()]


def cut(row: list[int]) -> list[int]:
    """Return the row up to its EOS."""
    return row[: row.index(EOS) + 1] if EOS in row else row


# ---- Both -------------------------------------------------------------------------------------


def drawn_pairs(
    count: int, sizes: tuple[int, int], seed: int = SEED
) -> tuple[np.ndarray, np.ndarray]:
    """Return `count` pairs of random ids, [B, 10] and [B, 9], with EOS and PAD behind them."""
    random = np.random.default_rng(seed)
    sides = []
    for size, length in zip(sizes, (10, 9), strict=True):
        ids = random.integers(4, size, (count, length))
        ends = random.integers(2, length, count)
        ids[np.arange(count), ends] = EOS
        ids[np.arange(length)[None] > ends[:, None]] = PAD
        sides.append(ids)
    return sides[0], sides[1]


def by_length(source: np.ndarray) -> Iterator[tuple[np.ndarray, Any]]:
    """Yield the numbers of the rows of each length, and these rows without PAD."""
    lengths = (source != PAD).sum(axis=1)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        yield rows, torch.tensor(source[rows, :length])


def computed(name: str, folder: Path, count: int, sizes: dict[str, int]) -> Arrays:
    """Write a model's folder; return pairs, log P of the targets, greedy and beam outputs."""
    torch.manual_seed(SEED)
    if name in FAIRSEQ:
        built = build_fairseq(FAIRSEQ[name], sizes)
        save_fairseq(built, FAIRSEQ[name], folder)
        model, log_probs, outputs = built[0], fairseq_log_probs, fairseq_outputs
        widths = (len(built[1].source_dictionary), len(built[1].target_dictionary))
    else:
        model = built = build_fsmt(FSMT[name], sizes)
        save_fsmt(model, FSMT[name], folder)
        log_probs, outputs = fsmt_log_probs, fsmt_outputs
        widths = (model.config.src_vocab_size, model.config.tgt_vocab_size)
    source, target = drawn_pairs(count, widths)
    found = {"source": source, "target": target}
    found["log_probs"] = (
        log_probs(model, torch.tensor(source), torch.tensor(target)).detach().numpy()
    )
    for kind, beam in (("greedy", 1), ("beam", 4)):
        table = np.full((count, source.shape[1] + EXTRA), PAD)
        for rows, ids in by_length(source):
            for row, output in zip(rows, outputs(built, ids, beam), strict=True):
                table[row, : len(output)] = output
        found[kind] = table
    return found


def record() -> dict[str, Any]:
    """Return the files of each model's folder as bytes, and what its program computes."""
    arrays: dict[str, Any] = {}
    for name in (*FAIRSEQ, *FSMT):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            found = computed(name, folder, 40, SIZES)
            for path in sorted(folder.iterdir()):
                arrays[f"{name}/file/{path.name}"] = path.read_bytes()
        for kind, array in found.items():
            small = array.astype(np.float32 if kind == "log_probs" else np.int16)
            arrays[f"{name}/{kind}"] = small
    return arrays
