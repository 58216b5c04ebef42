"""Average the last checkpoints of a run into one model (§6.1).

python -m experiments.average --workdir W --last 5
"""

from experiments import cli
from experiments.shared_flags import define_integer, define_workdir, run_folder
from jax_transformer.data.manifest import check_same
from jax_transformer.errors import InputError
from jax_transformer.runs.run_dir import IMPORTED

define_workdir()
LAST = define_integer(
    "last", None, "Number of checkpoints (default: training.average_last).", lower_bound=1
)


@cli.command
def main() -> None:
    """Average checkpoints, save the mean, and print the steps."""
    folder = run_folder()
    run = folder.load_run()
    from jax_transformer.runs.averages import ENDED, average_run
    from jax_transformer.runs.best import read_best
    from jax_transformer.runs.checkpoints import read_description
    from jax_transformer.runs.load import build_model, load_vocabularies
    from jax_transformer.training.train_step import abstract_params

    with folder.written():
        if run.corpus == IMPORTED:
            raise InputError(
                f"{folder.address}: expected checkpoints to average, found a finished model alone; "
                "use it as it is"
            )
        if not folder.trained_steps():
            raise InputError(
                f"{folder.address}: expected checkpoints, found none; train first with "
                f"python -m experiments.train --workdir {folder.quoted}"
            )
        folder.fetch_steps(folder.checkpoints)
        folder.fetch_steps(folder.averaged)
        with folder.locked():
            newest = read_description(folder.checkpoints)
            origin, end = newest["origin"], newest["position"].get(ENDED) and newest["step"]
            check_same(folder.path, folder.manifest.copy(), origin)
            params_like = abstract_params(build_model(run, *load_vocabularies(folder)))
            best = read_best(run.config.training, folder)
            steps, _ = average_run(folder, run, best, params_like, origin, LAST.value, end or None)
    cli.show(f"averaged {len(steps)} checkpoints, steps {', '.join(map(str, steps))}")
    cli.show(f"written to {folder.shown(folder.averaged)}")


if __name__ == "__main__":
    cli.run(main)
