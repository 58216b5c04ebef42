"""Write one HTML file that shows where each token attends, in every layer and head.

python -m experiments.visualize --workdir W --text "A sentence." [--target "Ein Satz."]
                                [--checkpoint averaged|last|STEP] [--set decoding.beam_size=4]

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

from experiments.cli import (
    FLAGS,
    command,
    decoding_settings,
    define_checkpoint,
    define_decoding_settings,
    define_workdir,
    in_the_way,
    run_folder,
)
from jax_transformer.errors import InputError
from jax_transformer.files import write_text

TEMPLATE = Path(__file__).with_suffix(".html")


define_workdir()
flags.DEFINE_string("text", None, "The sentence to translate and look at.")
flags.DEFINE_string("target", None, "Look at this translation, not at the model's own.")
flags.DEFINE_string("output", None, "The file to write (default: attention.html in the run).")
define_checkpoint()
define_decoding_settings()


@command()
def main() -> None:
    """Check the sentence, load the model, translate, collect the weights, write the page."""
    folder = run_folder()
    for name in ("text", "target"):
        given = FLAGS[name].value
        if (given is None and name == "text") or (given is not None and not given.strip()):
            raise InputError(f"--{name}: expected a sentence, found none; give it in quotes")
    folder.need_run()
    output = Path(FLAGS.output or Path(FLAGS.workdir) / "attention.html")
    if output.is_dir():
        raise InputError(f"--output={output}: expected a file, found a folder; name a file in it")
    if found := in_the_way(output.absolute()):
        raise InputError(f"--output={output}: expected a file, found {found}; name another")

    from jax_transformer.runs.loading import load, require_task
    from jax_transformer.runtime import prepare_process

    prepare_process()

    require_task(folder.need_run(), "translation", "experiments.visualize")
    trained = load(folder.path, FLAGS.checkpoint)
    source = _tokens(trained, "text", FLAGS.text)
    if FLAGS.target is None:
        target = _translation(trained, source)
    else:
        target = _tokens(trained, "target", FLAGS.target)
    translation = FLAGS.target or trained.vocabulary.decode(target)
    shown = {
        "source": " ".join(FLAGS.text.split()),
        "target": " ".join(translation.split()),
        "forced": FLAGS.target is not None,
        **_model_facts(trained),
        "views": _views_of(trained, source, target),
    }
    write_text(output, page(shown))
    print(translation)
    print(f"written to {output}")


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
    maps: Mapping[str, Float[np.ndarray, "1 H Q K"]],
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
    shift = "A decoder position reads the token on the left and writes the one behind the arrow"
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
            "layers": [packed(maps[key.format(layer)][0]) for layer in range(len(maps) // 3)],
        }
        for name, key, queries, keys, hint in kinds
    ]


def _tokens(trained: Any, flag: str, text: str) -> list[int]:
    """Token ids with the end mark. InputError where they are none or too many for the model."""
    tokens = trained.vocabulary.encode(text)
    most = trained.run.config.data.max_length - 1
    if not tokens:
        raise InputError(f"--{flag}: expected a sentence, found no characters of text; give one")
    if len(tokens) > most:
        raise InputError(
            f"--{flag}: expected at most {most:,} tokens, found {len(tokens):,}; give a shorter "
            "sentence"
        )
    return [*tokens, trained.vocabulary.eos_id]


def _translation(trained: Any, source: Sequence[int]) -> list[int]:
    """The model's best translation, the end mark included."""
    import jax

    from jax_transformer.decoding.generate import translate

    decoding = decoding_settings(trained.run)
    ids = trained.vocabulary
    search = jax.jit(
        lambda params, source: translate(
            trained.module, params, source, decoding, bos_id=ids.bos_id, eos_id=ids.eos_id
        )
    )
    best = search(trained.params, np.array([source], np.int32)).tokens[0, 0].tolist()
    return best[: best.index(ids.eos_id) + 1]


def _model_facts(trained: Any) -> dict[str, Any]:
    """Where the weights come from."""
    config, steps = trained.run.config.model, [f"{step:,}" for step in trained.steps]
    of = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
    facts = f"{trained.run.experiment}, {trained.checkpoint} checkpoint, {of}; "
    facts += f"{config.num_layers} + {config.num_layers} layers, {config.num_heads} heads"
    return {"facts": facts, "heads": config.num_heads}


def _views_of(trained: Any, source: Sequence[int], target: Sequence[int]) -> list[dict[str, Any]]:
    """`views` of the model's own weights on a pair of token ids."""
    import jax

    from jax_transformer.decoding.generate import attention_maps

    ids = trained.vocabulary
    inputs = np.array([[ids.bos_id, *target[:-1]]], np.int32)
    collect = jax.jit(
        lambda params, source, target: attention_maps(trained.module, params, source, target)
    )
    maps = jax.device_get(collect(trained.params, np.array([source], np.int32), inputs))
    return views(_texts(ids, source), _texts(ids, target), maps, *ids.pieces([ids.bos_id]))


def _texts(vocabulary: Any, tokens: Sequence[int]) -> list[str]:
    """The pieces as text: a space where a word starts."""
    return [piece.replace("\u2581", " ") for piece in vocabulary.pieces(tokens)]


if __name__ == "__main__":
    app.run(main)
