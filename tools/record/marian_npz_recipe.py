"""Small models that Marian trains on the demo's text, and what Marian computes with them.

Needs pymarian, numpy, sentencepiece and PyYAML, in an environment of its own, and some minutes.
"""

import bz2
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import yaml

ROOT = Path(__file__).parents[2]
LANGUAGES = {"source": "en", "target": "de"}
PAIRS, LINES, N_BEST = 20_000, 36, 2
ODD_LINES = [
    'She said: "No & never!"',
    "A \u2603 in the  dark",
    "\u6f22\u5b57 x</s>y <unk> z",
    "UPPER lower 1234 \u00c4\u00d6\u00dc\u00df",
]
PIECES = {"joint": 240, "source": 140, "target": 150}
TRAINING = (
    "--type transformer --dim-emb 16 --transformer-dim-ffn 32 --transformer-heads 2 "
    "--learn-rate 0.015 --lr-warmup 100 --lr-decay-inv-sqrt 100 --clip-norm 1 --max-length 80 "
    "--mini-batch 128 --maxi-batch 20 --after 900u --seed 1 --cpu-threads 1 --workspace 300 --quiet"
)
# The options of each model, and its vocabularies. In "tables" the text is cut before Marian reads
# it, as for OPUS-MT's models.
MODELS = {
    "swish": (
        "--enc-depth 2 --dec-depth 1 --tied-embeddings-all --beam-size 6 --normalize 1",
        ["joint.spm", "joint.spm"],
    ),
    "tables": (
        "--enc-depth 1 --dec-depth 1 --tied-embeddings-all --transformer-ffn-activation relu "
        "--beam-size 4 --normalize 0.6",
        ["joint.vocab.yml", "joint.vocab.yml"],
    ),
    "separate": (
        "--enc-depth 1 --dec-depth 2 --tied-embeddings --transformer-ffn-activation gelu "
        "--beam-size 4 --normalize 1",
        ["source.spm", "target.spm"],
    ),
    "prenorm": (
        "--enc-depth 1 --dec-depth 1 --tied-embeddings-all --transformer-ffn-activation relu "
        "--transformer-preprocess n --transformer-postprocess da --transformer-postprocess-top n "
        "--beam-size 4 --normalize 1",
        ["joint.spm", "joint.spm"],
    ),
    "untied": (
        "--enc-depth 1 --dec-depth 1 --tied-embeddings-src --output-omit-bias "
        "--transformer-ffn-activation relu --beam-size 4 --normalize 0",
        ["joint.spm", "joint.spm"],
    ),
}


def record() -> dict[str, bytes]:
    """Return the files of each model's folder, and Marian's results as JSON."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(folder)
        write_vocabularies(folder)
        for kind, (options, vocabularies) in MODELS.items():
            files, results = record_model(folder, options.split(), vocabularies)
            found |= {f"{kind}/{path}": content for path, content in files.items()}
            found[f"{kind}/results"] = json.dumps(results, ensure_ascii=False).encode()
            print(f"{kind}: greedy translations such as {results['greedy_text'][:2]}")
    return found


def write_text(folder: Path) -> None:
    """Write train and dev of both sides. dev ends with odd lines, which translate themselves."""
    for side, language in LANGUAGES.items():
        for split, count in (("train", PAIRS), ("dev", LINES)):
            path = ROOT / "jax_transformer" / "demo" / f"{split}.{language}.bz2"
            lines = bz2.decompress(path.read_bytes()).decode().split("\n")[:count]
            lines += ODD_LINES if split == "dev" else []
            write_lines(folder / f"{split}.{side}", lines)


def write_vocabularies(folder: Path) -> None:
    """Learn three models of sentencepiece, and write the table of the last two, and cut text."""
    for name, size in PIECES.items():
        sides = ["source", "target"] if name == "joint" else [name]
        sentencepiece.SentencePieceTrainer.train(
            input=",".join(str(folder / f"train.{side}") for side in sides),
            model_prefix=str(folder / name),
            vocab_size=size,
            normalization_rule_name="identity",  # the others are tables of 240 KB
            bos_id=-1,
            eos_id=0,
            unk_id=1,
            pad_id=-1,
            minloglevel=2,
        )
        (folder / f"{name}.model").rename(folder / f"{name}.spm")
    pieces = {"</s>": None, "<unk>": None}  # in the order of their ids
    for side in LANGUAGES:
        cutter = processor(folder / f"{side}.spm")
        pieces |= dict.fromkeys(cutter.id_to_piece(range(2, cutter.get_piece_size())))
        for split in ("train", "dev"):
            lines = read_lines(folder / f"{split}.{side}")
            cut = [" ".join(cutter.encode(line, out_type=str)) for line in lines]
            write_lines(folder / f"{split}.{side}.cut", cut)
    table = {piece: index for index, piece in enumerate(pieces)}
    text = yaml.safe_dump(table, allow_unicode=True, sort_keys=False)
    (folder / "joint.vocab.yml").write_text(text, encoding="utf-8")


def record_model(
    folder: Path, options: list[str], vocabularies: list[str]
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Train a model. Return the files of its folder, and what Marian makes of dev."""
    cut = ".cut" if "joint.vocab.yml" in vocabularies else ""
    model, places = folder / "model.npz", [str(folder / name) for name in vocabularies]
    for path in folder.glob("model.npz*"):
        path.unlink()
    sets = [str(folder / f"train.{side}{cut}") for side in LANGUAGES]
    files = ["--model", str(model), "--train-sets", *sets, "--vocabs", *places]
    marian("train", *TRAINING.split(), *options, *files)
    round_weights(model)
    search = (folder / "model.npz.decoder.yml").read_text(encoding="utf-8")
    kept = {*vocabularies, *(("source.spm", "target.spm") if cut else ())}
    written = {name: (folder / name).read_bytes() for name in ("model.npz", *sorted(kept))}
    written["decoder.yml"] = search.replace(f"{folder}/", "").encode()
    return written, results_of(folder, places, cut, yaml.safe_load(search))


def round_weights(model: Path) -> None:
    """Round the arrays to seven bits after the first, in float16, so that the record packs well.

    Marian reads float16, but no packed archive.
    """
    with np.load(model) as arrays:  # noqa: TID251, Marian wrote it a moment ago
        rounded = {
            name: array if array.dtype == np.int8 else _rounded(array)
            for name, array in arrays.items()
        }
    np.savez(model, **rounded)  # pyright: ignore[reportArgumentType]


def _rounded(array: np.ndarray) -> np.ndarray:
    bits = array.astype(np.float16).view(np.uint16)
    return ((bits + 4) & 0xFFF8).view(np.float16)


def results_of(folder: Path, vocabularies: list[str], cut: str, search: Any) -> dict[str, Any]:
    """Return log P of dev's pairs, greedy translations, and the best of a beam search."""
    model = str(folder / "model.npz")
    sets = [str(folder / f"dev.{side}{cut}") for side in LANGUAGES]
    options = ["--model", model, "--vocabs", *vocabularies, "--cpu-threads", "1", "--quiet"]
    scores = marian("score", *options, "--train-sets", *sets)
    lines = read_lines(Path(sets[0]))
    greedy, text = (
        translate(model, vocabularies, lines, beam_size=1, no_spm_decode=pieces)
        for pieces in (True, False)
    )
    if cut:
        text = [processor(folder / "target.spm").decode(line.split()) for line in text]
    beam = {"beam_size": search["beam-size"], "normalize": search["normalize"]}
    found = translate(model, vocabularies, lines, n_best=True, no_spm_decode=True, **beam)
    return {
        "source": read_lines(folder / "dev.source"),
        "target": read_lines(folder / "dev.target"),
        "log_probs": [float(line) for line in scores.split("\n") if line],
        "greedy": [line.split() for line in greedy],
        "greedy_text": text,
        "n_best": n_best(found, len(lines)),
    }


def n_best(found: list[str], count: int) -> list[list[tuple[list[str], float, float]]]:
    """Return the first outputs of each line: pieces, log P and score.

    found: Marian's lines `number ||| pieces ||| F0= log P ||| score`.
    """
    outputs: list[list[tuple[list[str], float, float]]] = [[] for _ in range(count)]
    for line in found:
        number, pieces, log_prob, score = line.split(" ||| ")
        if len(outputs[int(number)]) < N_BEST:
            outputs[int(number)].append(
                (pieces.split(), float(log_prob.split("=")[1]), float(score))
            )
    return outputs


def translate(model: str, vocabularies: list[str], lines: list[str], **options: Any) -> list[str]:
    """Return Marian's outputs. Each line is a batch: its widest line limits all its outputs."""
    import pymarian  # pyright: ignore[reportMissingImports]

    batches = {"mini_batch": 1, "maxi_batch": 1, "cpu_threads": 1, "quiet": True}
    found = pymarian.Translator(models=model, vocabs=vocabularies, **batches, **options)
    return found.translate(lines)


def marian(command: str, *arguments: str) -> str:
    """Run one of Marian's commands. Return its output."""
    call = [sys.executable, "-m", "pymarian", command, *arguments]
    return subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True).stdout


def processor(path: Path) -> Any:
    """Return a model of sentencepiece."""
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file."""
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def write_lines(path: Path, lines: list[str]) -> None:
    """Write one line each."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
