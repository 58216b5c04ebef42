"""The life of a run: its folder, checkpoints, trainer, metrics and loading."""
