"""Export a trained model for programs without JAX: a folder that can be copied and run.

python -m experiments.export --workdir W --format ctranslate2|marian|safetensors --out D
                             [--checkpoint averaged|last|STEP] [--quantization int8]

ctranslate2: for CTranslate2, in float32 or int8; marian: for Hugging Face's MarianMTModel;
safetensors: our own arrays, with a script that translates on NumPy alone. Each folder has its
vocabulary and a README.md that says how to load and run it.
"""

import shutil
from pathlib import Path
from uuid import uuid4

from absl import app, flags

from experiments.cli import (
    FLAGS,
    command,
    define_checkpoint,
    define_workdir,
    in_the_way,
    run_folder,
)
from jax_transformer.config import did_you_mean
from jax_transformer.errors import InputError

FORMATS = ["ctranslate2", "marian", "safetensors"]


define_workdir()
define_checkpoint()
flags.DEFINE_string("format", None, "What is to load it: ctranslate2, marian or safetensors.")
flags.DEFINE_string("out", None, "The folder to write, new or empty.")
flags.DEFINE_string("quantization", None, "int8: a quarter of the size; with ctranslate2 only.")


@command()
def main() -> None:
    """Check what is asked, convert, write the folder whole or not at all."""
    folder = run_folder()
    _check_flags()
    out = _free_folder()
    run = folder.need_run()

    from jax_transformer.export import check_exportable
    from jax_transformer.export.ctranslate2 import write_ctranslate2
    from jax_transformer.export.marian import write_marian
    from jax_transformer.export.safetensors import write_safetensors
    from jax_transformer.runs.loading import load

    check_exportable(run.config, FLAGS.format)
    trained = load(folder.path, FLAGS.checkpoint)
    building = out.with_name(f"{out.name}.{uuid4().hex}")
    building.mkdir(parents=True)
    try:
        if FLAGS.format == "ctranslate2":
            write_ctranslate2(trained, folder.vocabulary, building, FLAGS.quantization)
        elif FLAGS.format == "marian":
            write_marian(trained, folder.vocabulary, building)
        else:
            write_safetensors(trained, folder.vocabulary, building)
        building.replace(out)
    finally:
        shutil.rmtree(building, ignore_errors=True)  # there only where something went wrong
    steps = f"step {trained.steps[-1]:,}" if len(trained.steps) == 1 else "averaged"
    print(f"exported {trained.run.experiment}, {trained.checkpoint} checkpoint ({steps})")
    for path in sorted(out.iterdir()):
        print(f"  {path.name:<24} {path.stat().st_size:>12,} bytes")
    print(f"written to {out}; {out / 'README.md'} says how to run it")


def _check_flags() -> None:
    """Raises InputError where --format or --quantization make no sense."""
    if FLAGS.format not in FORMATS:
        found = FLAGS.format or "none"
        near = did_you_mean(FLAGS.format, FORMATS) if FLAGS.format else ""
        raise InputError(f"--format: expected one of {', '.join(FORMATS)}, found {found}{near}")
    if FLAGS.quantization not in (None, "int8"):
        raise InputError(
            f"--quantization={FLAGS.quantization}: expected int8; leave it out for float32"
        )
    if FLAGS.quantization and FLAGS.format != "ctranslate2":
        raise InputError(
            f"--quantization={FLAGS.quantization}: only ctranslate2 computes with it, found "
            f"--format={FLAGS.format}; leave it out, or give --format=ctranslate2"
        )


def _free_folder() -> Path:
    """--out, made sure to hold nothing that an export could mix with."""
    if not FLAGS.out:
        raise InputError("--out: expected the folder to write, found none; give a new one")
    out = Path(FLAGS.out).absolute()
    found = None
    if out.is_dir():
        found = "a folder with something in it" if any(out.iterdir()) else None
    elif out.exists():
        found = "a file"
    elif out.is_symlink():
        found = "a link to nothing"
    else:
        found = in_the_way(out)
    if found:
        raise InputError(
            f"--out={FLAGS.out}: expected a new or empty folder, found {found}; name another"
        )
    return out


if __name__ == "__main__":
    app.run(main)
