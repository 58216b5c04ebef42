"""Average the last checkpoints of a run into one model (§6.1).

python -m experiments.average --workdir W --last 5
"""

from absl import flags

from experiments.cli import FLAGS, define_workdir, open_door, run_folder
from jax_transformer.errors import InputError


def define_flags() -> None:
    """This door's flags."""
    define_workdir()
    flags.DEFINE_integer(
        "last", None, "How many checkpoints (default: training.average_last).", lower_bound=1
    )


def main() -> None:
    """Average, save, and say of what."""
    from jax_transformer.runs.checkpoints import average, save_average
    from jax_transformer.runs.loading import abstract_params, build_model, load_vocabularies

    folder = run_folder()
    run = folder.need_run()
    if not folder.has_checkpoints():
        raise InputError(
            f"{folder.path}: expected checkpoints, found none; train first with "
            f"python -m experiments.train --workdir {folder.quoted}"
        )
    like = abstract_params(build_model(run, *load_vocabularies(folder)))
    last = FLAGS.last or run.config.training.average_last
    steps, params = average(folder.checkpoints, like, last)
    save_average(folder.averaged, params, steps)
    print(f"averaged {len(steps)} checkpoints, steps {', '.join(map(str, steps))}")
    print(f"written to {folder.averaged}")


if __name__ == "__main__":
    open_door(define_flags, main, __doc__)
