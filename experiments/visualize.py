"""Write one HTML file that shows where each token attends, in every layer and head.

python -m experiments.visualize --workdir W --text "A sentence." [--target "Ein Satz."]
                                [--output F] [--checkpoint averaged|last|STEP]

The file needs no network and can be sent to anyone: source and translation, a picker of
layers and heads, and the weights of the token that the pointer or the keyboard is on.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import app, flags
from jaxtyping import Float

from experiments import cli
from experiments.cli import FLAGS
from jax_transformer.errors import InputError
from jax_transformer.files import write_text
from jax_transformer.runs.loading import AttentionMap, TrainedModel, load, require_task
from jax_transformer.runtime import prepare_process

TEMPLATE = Path(__file__).with_suffix(".html")
SHIFT = "A decoder position reads the token on the left and predicts the one after the arrow"
# The three attentions of §3.2.3: title, name in `TrainedModel.attention_maps`, hint.
VIEWS = [
    (
        "encoder self-attention",
        "encoder_{}/self_attention",
        "Every source token sees all of the source.",
    ),
    ("decoder self-attention", "decoder_{}/self_attention", f"{SHIFT}; it sees no later position."),
    ("decoder over source", "decoder_{}/cross_attention", f"{SHIFT}; it sees the whole source."),
]

cli.define_model_flags()
flags.DEFINE_string("text", None, "A sentence to translate and look at.")
flags.DEFINE_string("target", None, "Look at this translation, not at the model's.")
flags.DEFINE_string("output", None, "The file to write (default: attention.html in the run).")


@cli.command()
def main() -> None:
    """Translate --text, collect the attention weights of the pair, and write the page."""
    prepare_process()
    folder, source = cli.run_folder(), " ".join(cli.required("text").split())
    run = folder.load_run()
    require_task(run, "translation", "experiments.visualize")
    decoding = cli.run_config(run).decoding
    output = Path(FLAGS.output or folder.path / "attention.html")
    if output.is_dir():
        raise InputError(f"--output={output}: expected a file, found a folder; name a file in it")
    model = load(folder.path, FLAGS.checkpoint)
    _check_length(model, "text", source)
    if FLAGS.target is None:
        ((best,),) = model.translator(decoding).translate_lines([source])
        target = best.text
    else:
        target = " ".join(FLAGS.target.split())
        _check_length(model, "target", target)
    config, steps = model.config.model, cli.step_range(model.steps)
    content = {
        "source": source,
        "target": target,
        "forced": FLAGS.target is not None,
        "facts": f"{run.experiment}, {model.checkpoint} checkpoint, {steps}; {config.num_layers} + "
        f"{config.num_layers} layers, {config.num_heads} heads",
        "heads": config.num_heads,
        "views": views(model.attention_maps(source, target)),
    }
    write_text(output, page(content))
    print(target)
    print(f"written to {output}")


def _check_length(model: TrainedModel, flag: str, text: str) -> None:
    """InputError where a text has no tokens, or too many for the model."""
    count, most = len(model.vocabulary.encode(text)), model.config.data.max_length - 1
    if not 0 < count <= most:
        raise InputError(
            f"--{flag}: expected a sentence of 1 to {most:,} tokens, found {count:,}; give another"
        )


def page(content: Mapping[str, Any]) -> str:
    """The template with its data inside, as JSON that cannot end the element it stands in."""
    encoded = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        encoded = encoded.replace(character, f"\\u{ord(character):04x}")
    before, after = TEMPLATE.read_text(encoding="utf-8").split("@DATA@")
    return before + encoded + after


def packed(weights: Float[np.ndarray, "H Q K"]) -> str:
    """Weights as base64 of little-endian 16-bit shares of 65,535: right to 1/131070."""
    shares = np.rint(np.asarray(weights, np.float64) * 65535).astype("<u2")
    return base64.b64encode(shares.tobytes()).decode("ascii")


def views(maps: Mapping[str, AttentionMap]) -> list[dict[str, Any]]:
    """What the page shows of each of VIEWS: queries, keys, and the weights of every layer.

    The decoder reads the target shifted right: its position t reads target token t - 1, which is
    the begin mark at 0, and predicts token t.
    """
    end = maps["encoder_0/self_attention"].keys[-1]
    shown = []
    for title, name, hint in VIEWS:
        layers = [maps[name.format(layer)] for layer in range(len(maps) // 3)]
        queries, keys = _tokens(layers[0].queries), _tokens(layers[0].keys)
        if name.startswith("decoder"):
            following = [token["text"] for token in queries[1:]] + [end]
            for token, text in zip(queries, following, strict=True):
                token["writes"] = text.strip()
        weights = [packed(layer.weights) for layer in layers]
        shown.append(
            {"name": title, "hint": hint, "queries": queries, "keys": keys, "layers": weights}
        )
    return shown


def _tokens(pieces: Sequence[str]) -> list[dict[str, str]]:
    """Pieces as text, with a space where a word starts."""
    return [{"text": piece.replace("\u2581", " ")} for piece in pieces]


if __name__ == "__main__":
    app.run(main)
