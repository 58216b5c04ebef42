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
from jax_transformer.runs.loading import TrainedModel, load, require_task
from jax_transformer.runtime import prepare_process

TEMPLATE = Path(__file__).with_suffix(".html")

cli.define_workdir()
cli.define_checkpoint()
cli.define_decoding_settings()
flags.DEFINE_string("text", None, "The sentence to translate and look at.")
flags.DEFINE_string("target", None, "Look at this translation, not at the model's own.")
flags.DEFINE_string("output", None, "The file to write (default: attention.html in the run).")


@cli.command()
def main() -> None:
    """Translate --text, collect the attention weights of the pair, and write the page."""
    prepare_process()
    folder = cli.run_folder()
    for name in ("text", "target"):
        given = FLAGS[name].value
        if (given is None and name == "text") or (given is not None and not given.strip()):
            raise InputError(f"--{name}: expected a sentence, found none; give it in quotes")
    run = folder.load_run()
    require_task(run, "translation", "experiments.visualize")
    decoding = cli.decoding_settings(run)
    output = _output(folder.path)
    model = load(folder.path, FLAGS.checkpoint)
    for name in ("text", "target"):
        _check_length(model, name, FLAGS[name].value)
    source = " ".join(FLAGS.text.split())
    target = FLAGS.target
    if target is None:
        ((best,),) = model.translator(decoding).translate_lines([source])
        target = best.text
    target = " ".join(target.split())
    maps = model.attention_maps(source, target)
    # The decoder reads the target from the begin mark on, and writes it with the end mark.
    read = _texts(maps["encoder_0/self_attention"].keys)
    begin, *written = _texts(maps["decoder_0/self_attention"].keys)
    end = read[-1]
    shown = {
        "source": source,
        "target": target,
        "forced": FLAGS.target is not None,
        **_facts(model),
        "views": views(read, [*written, end], {k: m.weights for k, m in maps.items()}, begin),
    }
    write_text(output, page(shown))
    print(target)
    print(f"written to {output}")


def _output(folder: Path) -> Path:
    """Where to write. InputError where no file can be written there."""
    output = Path(FLAGS.output or folder / "attention.html")
    if output.is_dir():
        raise InputError(f"--output={output}: expected a file, found a folder; name a file in it")
    if found := cli.in_the_way(output.absolute()):
        raise InputError(f"--output={output}: expected a file, found {found}; name another")
    return output


def _check_length(model: TrainedModel, flag: str, text: str | None) -> None:
    """InputError where a text has no tokens, or too many for the model."""
    if text is None:
        return
    count, most = len(model.vocabulary.encode(text)), model.config.data.max_length - 1
    if not count:
        raise InputError(f"--{flag}: expected a sentence, found no characters of text; give one")
    if count > most:
        raise InputError(
            f"--{flag}: expected at most {most:,} tokens, found {count:,}; give a shorter sentence"
        )


def _facts(model: TrainedModel) -> dict[str, Any]:
    """Where the weights come from."""
    config, steps = model.config.model, [f"{step:,}" for step in model.steps]
    of = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
    facts = f"{model.run.experiment}, {model.checkpoint} checkpoint, {of}; "
    facts += f"{config.num_layers} + {config.num_layers} layers, {config.num_heads} heads"
    return {"facts": facts, "heads": config.num_heads}


def _texts(pieces: Sequence[str]) -> list[str]:
    """The pieces as text: a space where a word starts."""
    return [piece.replace("\u2581", " ") for piece in pieces]


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


def views(
    source: Sequence[str],
    target: Sequence[str],
    maps: Mapping[str, Float[np.ndarray, "H Q K"]],
    begin: str,
) -> list[dict[str, Any]]:
    """The three attentions of §3.2.3, each with its queries, keys and weights of every layer.

    source, target: texts of the tokens, the end mark included. The decoder reads the
    target shifted right: its position t reads target token t - 1 (`begin` at 0) and writes
    token t.
    """
    read = [{"text": text} for text in source]
    written = [{"text": text} for text in (begin, *target[:-1])]
    writes = [
        {**token, "writes": text.strip()} for token, text in zip(written, target, strict=True)
    ]
    shift = "A decoder position reads the token on the left and writes the one after the arrow"
    kinds = [
        ("encoder self-attention", "encoder_{}/self_attention", read, read,
         "Every source token sees all of the source."),
        ("decoder self-attention", "decoder_{}/self_attention", writes, written,
         f"{shift}; it sees no later position."),
        ("decoder over source", "decoder_{}/cross_attention", writes, read,
         f"{shift}; it sees the whole source."),
    ]  # fmt: skip
    return [
        {
            "name": name,
            "hint": hint,
            "queries": queries,
            "keys": keys,
            "layers": [packed(maps[key.format(layer)]) for layer in range(len(maps) // 3)],
        }
        for name, key, queries, keys, hint in kinds
    ]


if __name__ == "__main__":
    app.run(main)
