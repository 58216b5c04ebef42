"""Export a trained model for programs without JAX: a folder that can be copied and run.

python -m experiments.export --workdir W --format ctranslate2|marian|safetensors --output D
                             [--checkpoint averaged|last|STEP] [--quantization int8]

ctranslate2: for CTranslate2, in float32 or int8; marian: for Hugging Face's MarianMTModel;
safetensors: our own arrays, with a script that translates on NumPy alone. Each folder has its
vocabulary and a README.md that says how to load and run it.
"""

import shutil
from pathlib import Path
from typing import get_args
from uuid import uuid4

from absl import app, flags

from experiments import cli
from experiments.cli import FLAGS
from jax_transformer.errors import InputError, did_you_mean
from jax_transformer.export import Format, check_exportable
from jax_transformer.export.ctranslate2 import write_ctranslate2
from jax_transformer.export.marian import write_marian
from jax_transformer.export.safetensors import write_safetensors
from jax_transformer.runs.loading import TrainedModel, load

FORMATS = list(get_args(Format))

cli.define_workdir()
cli.define_checkpoint()
flags.DEFINE_string("format", None, f"What is to load it: {', '.join(FORMATS)}.")
flags.DEFINE_string("output", None, "The folder to write, new or empty.")
flags.DEFINE_string("quantization", None, "int8: a quarter of the size; with ctranslate2 only.")


@cli.command()
def main() -> None:
    """Check the flags, convert, and write the folder whole or not at all."""
    folder = cli.run_folder()
    _check_flags()
    output = _free_folder()
    check_exportable(folder.load_run().config, FLAGS.format)
    model = load(folder.path, FLAGS.checkpoint)
    building = output.with_name(f"{output.name}.{uuid4().hex}")
    building.mkdir(parents=True)
    try:
        _write(model, folder.vocabulary, building)
        building.replace(output)
    finally:
        shutil.rmtree(building, ignore_errors=True)  # there only where something went wrong
    steps = f"step {model.steps[-1]:,}"
    if len(model.steps) > 1:
        steps = f"steps {model.steps[0]:,} to {model.steps[-1]:,}"
    print(f"exported {model.run.experiment}, {model.checkpoint} checkpoint ({steps})")
    for path in sorted(output.iterdir()):
        print(f"  {path.name:<24} {path.stat().st_size:>12,} bytes")
    print(f"written to {output}; {output / 'README.md'} says how to run it")


def _write(model: TrainedModel, vocabulary: Path, folder: Path) -> None:
    if FLAGS.format == "ctranslate2":
        write_ctranslate2(model, vocabulary, folder, FLAGS.quantization)
    elif FLAGS.format == "marian":
        write_marian(model, vocabulary, folder)
    else:
        write_safetensors(model, vocabulary, folder)


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
    """--output as an absolute path. InputError where an export could mix with something there."""
    if not FLAGS.output:
        raise InputError("--output: expected the folder to write, found none; give a new one")
    output = Path(FLAGS.output).absolute()
    found = None
    if output.is_dir():
        found = "a folder with something in it" if any(output.iterdir()) else None
    elif output.exists():
        found = "a file"
    elif output.is_symlink():
        found = "a link to nothing"
    else:
        found = cli.in_the_way(output)
    if found:
        raise InputError(
            f"--output={FLAGS.output}: expected a new or empty folder, found {found}; name another"
        )
    return output


if __name__ == "__main__":
    app.run(main)
