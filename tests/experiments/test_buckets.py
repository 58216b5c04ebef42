"""A run folder in a bucket, which is a folder here: machines come and go, the run stays."""

import json

import pytest
from commands import (
    STEPS,
    files_of,
    only_error,
    record,
    results,
    run_command,
    setting_flags,
    text_flags,
)
from test_hosts import SETTINGS, ended, hosts


@pytest.fixture
def bucket(tmp_path):
    """The folder that file:// shows as a bucket."""
    return tmp_path / "bucket" / "run"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """What this process runs from now on, it runs on a machine with an empty disk."""

    def new(name):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))

    return new


@pytest.mark.release
def test_training_goes_on_on_another_machine_and_a_third_one_translates_and_evaluates(
    bucket, machine, flags, text, trained
):
    flags = [flag.replace("=/", "=file:///") for flag in flags]  # text in a bucket too
    machine("first")
    half = f"--set=training.steps={STEPS // 2}"
    done = run_command("train", f"--workdir=file://{bucket}", *flags, half)
    assert f"--workdir file://{bucket}" in done.stdout
    machine("second")
    done = run_command("train", f"--workdir=file://{bucket}", f"--set=training.steps={STEPS}")
    assert f"from step {STEPS // 2} to {STEPS}" in done.stderr
    assert record(bucket, STEPS) == record(trained, STEPS)
    machine("third")
    source = (text / "test.en").read_bytes()
    for checkpoint in ("averaged", "last"):
        command = "translate", f"--checkpoint={checkpoint}"
        expected = run_command(*command, f"--workdir={trained}", stdin=source).stdout
        assert run_command(*command, f"--workdir=file://{bucket}", stdin=source).stdout == expected
    before = len(results(bucket))
    done = run_command("evaluate", f"--workdir=file://{bucket}")
    assert f"written to file://{bucket}/translations/" in done.stdout
    assert len(results(bucket)) > before
    run_command("average", f"--workdir=file://{bucket}", "--last=2")
    # Nothing is deleted in the bucket, and the new mean is numbered after the ones before.
    assert {path.name for path in (bucket / "averaged").iterdir()} == {"1", "2", "3"}


@pytest.mark.release
def test_two_hosts_that_share_nothing_but_the_bucket(bucket, machine, text, tmp_path):
    machine("any")
    few = {"training__steps": 4, "training__evaluate_steps": 4, "training__checkpoint_steps": 4}
    few |= {"model__dropout_rate": 0}
    flags = ["--experiment=base", *text_flags(text), *setting_flags(**{**SETTINGS, **few})]
    with hosts(f"--workdir=file://{bucket}", *flags, disks=tmp_path / "disks") as processes:
        ended(processes, [0, 0])
    copies = [tmp_path / "disks" / name / "jax_transformer" / "buckets" for name in "01"]
    assert all(any(copy.rglob("averaged")) for copy in copies)
    lines = [json.loads(line) for line in (bucket / "metrics.jsonl").read_text().splitlines()]
    assert lines[-2]["step"] == 4
    flags.append("--set=training.steps=6")  # on other machines, which have no checkpoint yet
    with hosts(f"--workdir=file://{bucket}", *flags, disks=tmp_path / "others") as processes:
        ended(processes, [0, 0])
    lines = [json.loads(line) for line in (bucket / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["split"] == "train"] == [*range(1, 7)]
    machine("another")
    done = run_command("translate", f"--workdir=file://{bucket}", stdin=b"a b\n")
    assert done.stdout.count("\n") == 1


def test_a_bucket_without_a_run_is_refused_before_anything_of_it_is_copied(
    bucket, machine, tmp_path
):
    machine("first")
    (bucket / "below").mkdir(parents=True)
    (bucket / "below" / "large.bin").write_bytes(b"large")
    for command in ("translate", "train", "average"):
        line = only_error(command, f"--workdir=file://{bucket.parent}")
        assert f"file://{bucket.parent}: expected a run folder with a config.json" in line
        assert "found none" in line
    line = only_error("translate", f"--workdir=file://{bucket}/new")
    assert f"file://{bucket}/new: expected a run folder" in line
    assert not (tmp_path / "first" / "jax_transformer" / "buckets").exists()
    assert len(files_of(bucket)) == 1


@pytest.mark.release
def test_s3(flags, text, trained, machine, monkeypatch):
    """Over S3's own protocol, to a server of this process."""
    server_of_moto = pytest.importorskip("moto.server", reason="pip install 'moto[server]' s3fs")
    s3fs = pytest.importorskip("s3fs", reason="pip install 'moto[server]' s3fs")
    machine("first")
    server = server_of_moto.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    try:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*server.get_host_and_port()))
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "any")
        files = s3fs.S3FileSystem(skip_instance_cache=True)
        files.mkdir("box")
        for path in text.iterdir():
            files.put_file(str(path), f"box/text/{path.name}")
        in_bucket = [flag.replace(f"={text}/", "=s3://box/text/") for flag in flags]
        run_command("train", "--workdir=s3://box/run", *in_bucket)
        found = files.cat(f"box/run/checkpoints/{STEPS}/description/metadata")
        assert json.loads(found)["content"]["arrays"] == record(trained, STEPS)["arrays"]
        machine("second")
        source = (text / "test.en").read_bytes()
        expected = run_command("translate", f"--workdir={trained}", stdin=source).stdout
        stdout = run_command("translate", "--workdir=s3://box/run", stdin=source).stdout
        assert stdout == expected
    finally:
        server.stop()
