"""Export a trained model for programs without JAX: a folder that can be copied and run.

python -m experiments.export --workdir W --format ctranslate2|marian|safetensors --output D
                             [--checkpoint averaged|best|last|STEP] [--quantization int8]

ctranslate2: for CTranslate2, in float32 or int8; marian: for Hugging Face's MarianMTModel;
safetensors: the arrays by their own names, for any program. Each folder has its vocabulary and a
README.md that explains how to load it.
"""

import logging

from absl import flags

from experiments import cli
from experiments.cli import FLAGS
from experiments.shared_flags import (
    define_checkpoint,
    define_path,
    define_workdir,
    required,
    run_folder,
)
from jax_transformer.formats import (
    QUANTIZATIONS,
    WRITE_FORMATS,
    check_export,
    check_exportable,
)

logger = logging.getLogger(__name__)

define_workdir()
define_checkpoint()
flags.DEFINE_enum("format", None, WRITE_FORMATS, "Format to write.")
define_path("output", "Folder to write, new or empty.")
flags.DEFINE_enum(
    "quantization",
    None,
    QUANTIZATIONS,
    "Store the weights as int8, a quarter of the size (default: float32); only with "
    "--format=ctranslate2.",
)


@cli.command
def main() -> None:
    """Check the flags, convert, and write the folder whole or not at all."""
    folder, form, quantization = run_folder(), required("format"), FLAGS.quantization
    output = check_export(form, required("output"), quantization)
    check_exportable(folder.load_run().config, form)
    from jax_transformer.runs.load import load

    model = load(folder, FLAGS.checkpoint)
    logger.info("export      writing %s ...", form)
    model.export(form, output, quantization=quantization)
    cli.show(f"exported {model.description}")
    for path in sorted(output.iterdir()):
        cli.show(f"  {path.name:<24} {path.stat().st_size:>12,} bytes")
    cli.show(f"written to {output}; {output / 'README.md'} explains how to use it")


if __name__ == "__main__":
    cli.run(main)
