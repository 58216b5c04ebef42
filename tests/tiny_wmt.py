"""A tiny WMT 14 as tensorflow-datasets prepares it, made without TensorFlow."""

from pathlib import Path

NAME = "wmt14_translate/de-en"
COUNTS = {"train": 2_345, "validation": 5, "test": 4}


def example(split, number):
    """A pair with entities; every tenth has a blank German side."""
    german = f"Hund &amp; {split} &quot;{number}&quot; ß" * (number % 10 > 0)
    return {"en": f"dog &amp; {split} &#39;{number}&#39;", "de": german}


def english(split, number):
    """What the entities stand for."""
    return f"dog & {split} '{number}'"


def german(split, number):
    """What the entities stand for."""
    return f'Hund & {split} "{number}" \u00df' * (number % 10 > 0)


def prepared_data(data_dir, counts=None, file_format="array_record", **changed):
    """Write the data set as TFDS does, without TensorFlow and without shuffling."""
    # Its flags have to be there before a command runs in this process, which forgets its own.
    import array_record.python.array_record_data_source  # noqa: F401
    import tensorflow_datasets as tfds

    class Wmt14Translate(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        BUILDER_CONFIGS = (tfds.core.BuilderConfig(name="de-en"),)

        def _info(self):
            features = tfds.features.Translation(languages=["de", "en"])
            return tfds.core.DatasetInfo(builder=self, features=features, disable_shuffling=True)

        def _split_generators(self, _):
            return {split: self._generate_examples(split) for split in counts or COUNTS}

        def _generate_examples(self, split):
            for number in range((counts or COUNTS)[split]):
                yield number, changed.get(f"{split}_{number}", example(split, number))

    builder = Wmt14Translate(config="de-en", data_dir=str(data_dir), file_format=file_format)
    builder.download_and_prepare()
    return Path(data_dir)
