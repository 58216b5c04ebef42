"""Small CTranslate2 folders, made by its converters of random models of other programs."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import torch  # pyright: ignore[reportMissingImports]
import transformers  # pyright: ignore[reportMissingImports]
from ctranslate2.converters import OpenNMTPyConverter, TransformersConverter

from jax_transformer.config import Config, DataConfig, ModelConfig
from jax_transformer.data.vocabularies import load_vocabulary
from jax_transformer.data.vocabularies.sentencepiece import train_vocabulary
from jax_transformer.formats.ctranslate2 import write_ctranslate2
from jax_transformer.runs.load import build_model
from jax_transformer.runs.model import TrainedModel
from jax_transformer.runs.run_dir import Run
from jax_transformer.training.train_step import abstract_params
from tools.record.ctranslate2_parts import drawn, lines, results, write_model_file

D_MODEL, D_FF, HEADS, ROWS = 16, 24, 2, 64
PAIRS = 16  # lines of each folder's results
OURS = ModelConfig(
    num_layers=2,
    d_model=D_MODEL,
    d_ff=D_FF,
    num_heads=HEADS,
    attention_bias=True,
    tie_embeddings=False,
    positions="learned",
    max_positions=80,
)
# Put before every name that weights are drawn by: with these, outputs differ and most of them end.
SALTS = {"marian": "21/", "m2m100": "5/", "opennmt": "6/", "opennmt-tf": "70/", "ours": "14/"}


def write_sentencepiece(path: Path, seed: int, size: int) -> list[str]:
    """Learn a model of sentencepiece, and return its pieces."""
    vocabulary = train_vocabulary(lines(seed, 300), size, path)
    return vocabulary.pieces(range(vocabulary.size))


def draw_tensors(model: Any, salt: str) -> None:
    """Draw every parameter and buffer by its name, but for tables of positions."""
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if "embed_positions" not in name:
                tensor.copy_(torch.from_numpy(drawn(salt + name, *tensor.shape)))


# ---- Folders ------------------------------------------------------------------------------


def write_hugging_face(
    model: Any, tokenizer: Any, files: list[str], out: Path, **options: Any
) -> None:
    """Save a model, and convert what was saved."""
    folder = out.with_name(f"{out.name}-hugging-face")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    converter = TransformersConverter(str(folder), copy_files=files)
    converter.convert(str(out), **options)


def write_marian(out: Path, quantization: str | None = None) -> None:
    """Write a MarianMTModel: swish, a bias on the logits, two models of sentencepiece, a tag."""
    inputs = out.with_name(f"{out.name}-inputs")
    inputs.mkdir()
    source = write_sentencepiece(inputs / "source.spm", seed=1, size=40)
    target = write_sentencepiece(inputs / "target.spm", seed=2, size=40)
    pieces = ["</s>", "<unk>", *dict.fromkeys(source[4:] + target[4:]), ">>xx<<", "<pad>"]
    ids = {piece: i for i, piece in enumerate(pieces)}
    (inputs / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    tokenizer = transformers.MarianTokenizer(
        source_spm=str(inputs / "source.spm"),
        target_spm=str(inputs / "target.spm"),
        vocab=str(inputs / "vocab.json"),
    )
    size = len(pieces)
    config = transformers.MarianConfig(
        **_sizes(),
        vocab_size=size,
        decoder_vocab_size=size,
        activation_function="swish",
        scale_embedding=True,
        pad_token_id=size - 1,
        eos_token_id=0,
        decoder_start_token_id=size - 1,
        forced_eos_token_id=0,
    )
    model = transformers.MarianMTModel(config).eval()
    draw_tensors(model, SALTS["marian"])
    with torch.no_grad():
        model.model.shared.weight[-1] = 0
        model.final_logits_bias[0, -1] = 0
    files = ["source.spm", "target.spm"]
    write_hugging_face(model, tokenizer, files, out, quantization=quantization)


def write_m2m100(out: Path) -> None:
    """Write an M2M100ForConditionalGeneration: pre-norm, fairseq's positions, languages."""
    inputs = out.with_name(f"{out.name}-inputs")
    inputs.mkdir()
    learned = write_sentencepiece(inputs / "sentencepiece.bpe.model", seed=3, size=40)
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *learned[4:], "__en__", "__de__"]
    ids = {piece: i for i, piece in enumerate(pieces)}
    (inputs / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    tokenizer = transformers.M2M100Tokenizer(
        vocab_file=str(inputs / "vocab.json"), spm_file=str(inputs / "sentencepiece.bpe.model")
    )
    config = transformers.M2M100Config(
        **_sizes(),
        vocab_size=len(pieces) + tokenizer.num_madeup_words,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=2,
    )
    model = transformers.M2M100ForConditionalGeneration(config).eval()
    draw_tensors(model, SALTS["m2m100"])
    write_hugging_face(model, tokenizer, ["sentencepiece.bpe.model"], out)


def _sizes() -> dict[str, Any]:
    sizes: dict[str, Any] = {"encoder_layers": 2, "decoder_layers": 1, "d_model": D_MODEL}
    for stack in ("encoder", "decoder"):
        sizes |= {f"{stack}_ffn_dim": D_FF, f"{stack}_attention_heads": HEADS}
    return {**sizes, "max_position_embeddings": ROWS}


def write_opennmt(out: Path) -> None:
    """Write OpenNMT-py's: pre-norm, gelu, two vocabularies, the paper's positions, no end marks."""
    inputs = out.with_name(f"{out.name}-inputs")
    inputs.mkdir()
    spm = inputs / "sentencepiece.model"
    pieces = write_sentencepiece(spm, seed=4, size=40)[4:]
    source = ["<unk>", "<blank>", *pieces]
    target = ["<unk>", "<blank>", "<s>", "</s>", *reversed(pieces)]
    options = {"encoder_type": "transformer", "decoder_type": "transformer"}
    options |= {"position_encoding": True, "pos_ffn_activation_fn": "gelu"}
    options |= {"enc_layers": 2, "dec_layers": 1, "heads": HEADS}
    tensors = _opennmt_tensors(len(source), len(target))
    generator = {leaf: tensors.pop(f"generator.{leaf}") for leaf in ("weight", "bias")}
    checkpoint = {
        "opt": SimpleNamespace(**options),
        "vocab": {"src": source, "tgt": target},
        "model": tensors,
        "generator": generator,
    }
    torch.save(checkpoint, inputs / "model.pt")
    converter = OpenNMTPyConverter(str(inputs / "model.pt"), unsafe_deserialization=True)
    converter.convert(str(out))
    (out / "sentencepiece.model").write_bytes(spm.read_bytes())


def opennmt_shapes(source: int, target: int) -> dict[str, list[int]]:
    """Return the shape of every tensor by OpenNMT-py's name, without the table of positions."""
    shapes: dict[str, list[int]] = {
        "encoder.embeddings.make_embedding.emb_luts.0.weight": [source, D_MODEL],
        "decoder.embeddings.make_embedding.emb_luts.0.weight": [target, D_MODEL],
        "generator.weight": [target, D_MODEL],
        "generator.bias": [target],
    }
    layers = {f"encoder.transformer.{i}": ["self_attn"] for i in range(2)}
    layers["decoder.transformer_layers.0"] = ["self_attn", "context_attn"]
    for layer, attentions in layers.items():
        for attention in attentions:
            for name in ("query", "keys", "values"):
                shapes[f"{layer}.{attention}.linear_{name}.weight"] = [D_MODEL, D_MODEL]
            shapes[f"{layer}.{attention}.final_linear.weight"] = [D_MODEL, D_MODEL]
        shapes |= {f"{layer}.feed_forward.w_1.weight": [D_FF, D_MODEL]}
        shapes |= {f"{layer}.feed_forward.w_1.bias": [D_FF]}
        shapes |= {f"{layer}.feed_forward.w_2.weight": [D_MODEL, D_FF]}
        shapes |= {f"{layer}.feed_forward.w_2.bias": [D_MODEL]}
        norms = ["layer_norm_1", "layer_norm_2"] if "decoder" in layer else ["layer_norm"]
        for norm in [*norms, "feed_forward.layer_norm"]:
            shapes |= {f"{layer}.{norm}.{leaf}": [D_MODEL] for leaf in ("weight", "bias")}
    for stack in ("encoder", "decoder"):
        shapes |= {f"{stack}.layer_norm.{leaf}": [D_MODEL] for leaf in ("weight", "bias")}
    return shapes


def _opennmt_tensors(source: int, target: int) -> dict[str, Any]:
    shapes = opennmt_shapes(source, target)
    tensors = {
        name: torch.from_numpy(drawn(SALTS["opennmt"] + name, *shape))
        for name, shape in shapes.items()
    }
    angles = torch.arange(ROWS)[:, None] * 10000.0 ** (-torch.arange(0, D_MODEL, 2) / D_MODEL)
    table = torch.stack([angles.sin(), angles.cos()], -1).reshape(ROWS, 1, D_MODEL)
    for stack in ("encoder", "decoder"):
        tensors[f"{stack}.embeddings.make_embedding.pe.pe"] = table
    return tensors


def write_opennmt_tf(out: Path) -> None:
    """Write what OpenNMT-tf's converter did in 2023: no table of positions, lines of pieces.

    One vocabulary, post-norm and ReLU; the embeddings of the encoder are not scaled.
    """
    out.mkdir()
    pieces = write_sentencepiece(out / "sentencepiece.model", seed=5, size=40)
    table = ["<blank>", "<s>", "</s>", *pieces[4:], "<unk>"]
    (out / "shared_vocabulary.txt").write_text("\n".join(table) + "\n", encoding="utf-8")
    config = {
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "decoder_start_token": "<s>",
        "add_source_bos": False,
        "add_source_eos": True,
    }
    (out / "config.json").write_text(json.dumps(config), encoding="utf-8")
    kept: dict[str, Any] = {
        name: drawn(SALTS["opennmt-tf"] + name, *shape)
        for name, shape in opennmt_tf_shapes(len(table)).items()
    }
    for stack in ("encoder", "decoder"):
        kept[f"{stack}/num_heads"] = np.int16(HEADS)
        kept |= {f"{stack}/{name}": np.int8(0) for name in ("pre_norm", "activation")}
        kept[f"{stack}/scale_embeddings"] = np.int8(stack == "decoder")
    write_model_file(out / "model.bin", 6, "TransformerSpec", 7, kept, {})


def opennmt_tf_shapes(size: int) -> dict[str, list[int]]:
    """Return the shape of every variable by CTranslate2's name."""
    shapes = {
        "encoder/embeddings_0/weight": [size, D_MODEL],
        "decoder/embeddings/weight": [size, D_MODEL],
        "decoder/projection/weight": [size, D_MODEL],
    }
    layers = ["encoder/layer_0", "encoder/layer_1", "decoder/layer_0"]
    for layer in layers:
        joined = {"self_attention": [3, 1]}
        if "decoder" in layer:
            joined["attention"] = [1, 2, 1]
        for attention, widths in joined.items():
            for number, width in enumerate(widths):
                linear = f"{layer}/{attention}/linear_{number}"
                shapes[f"{linear}/weight"] = [width * D_MODEL, D_MODEL]
                shapes[f"{linear}/bias"] = [width * D_MODEL]
        for number, (rows, columns) in enumerate([(D_FF, D_MODEL), (D_MODEL, D_FF)]):
            shapes[f"{layer}/ffn/linear_{number}/weight"] = [rows, columns]
            shapes[f"{layer}/ffn/linear_{number}/bias"] = [rows]
        for part in [*joined, "ffn"]:
            for leaf in ("gamma", "beta"):
                shapes[f"{layer}/{part}/layer_norm/{leaf}"] = [D_MODEL]
    return shapes


def write_ours(out: Path) -> None:
    """Export a random model of our own: biases, three matrices of embeddings, learned positions."""
    out.mkdir()
    write_sentencepiece(out / "pieces", seed=6, size=40)
    ids = load_vocabulary(out / "pieces")
    (out / "pieces").unlink()
    run = Run("random", 0, Config(model=OURS, data=DataConfig(max_length=24)))
    module = build_model(run, ids, ids)
    params = drawn_params(module)
    write_ctranslate2(TrainedModel(run, ids, ids, module, params, "last", [1]), out)
    (out / "README.md").unlink()


def drawn_params(module: Any) -> Any:
    """Return parameters drawn by their own names."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: drawn(SALTS["ours"] + "/".join(part.key for part in path), *leaf.shape),
        abstract_params(module),
    )


FOLDERS: dict[str, Callable[[Path], None]] = {
    "marian": write_marian,
    "marian-float16": lambda out: write_marian(out, "float16"),
    "marian-int8": lambda out: write_marian(out, "int8"),
    "m2m100": write_m2m100,
    "opennmt": write_opennmt,
    "opennmt-tf": write_opennmt_tf,
    "ours": write_ours,
}


def record() -> dict[str, bytes]:
    """Return the files of each folder, and CTranslate2's results as JSON."""
    files = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name, write in FOLDERS.items():
            folder = Path(temporary) / name
            write(folder)
            for path in sorted(folder.iterdir()):
                files[f"{name}/{path.name}"] = path.read_bytes()
            files[f"{name}/results.json"] = json.dumps(results(folder, PAIRS)).encode()
    return files
