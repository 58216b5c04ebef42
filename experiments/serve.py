"""Answer requests over HTTP with a trained model, and show a web page to try it.

python -m experiments.serve --workdir W [--port 8000] [--host 127.0.0.1] [--token_file F]
curl -s localhost:8000/translate -H 'Content-Type: application/json' -d '{"lines": ["A sentence."]}'

It first compiles translation without options; each kind of options is compiled at its first use.
On SIGTERM it finishes its requests and stops. /openapi.json and docs/serving.md describe requests.
"""

import ipaddress
import logging
import math
import re

from absl import flags

from experiments import cli
from experiments.cli import FLAGS
from experiments.shared_flags import (
    define_integer,
    define_model_flags,
    define_path,
    load_models,
    trained_run,
)
from jax_transformer.errors import InputError, install_command
from jax_transformer.files import check_regular
from jax_transformer.progress import Progress
from jax_transformer.runtime import prepare_process

define_model_flags(ensembles=True)
flags.DEFINE_string("host", "127.0.0.1", "Address to listen on; 0.0.0.0 listens on all networks.")
define_integer(
    "port", 8000, "Port to listen on; 0 chooses a free one.", lower_bound=0, upper_bound=65535
)
define_path("token_file", "File whose first line clients must send as a bearer token.")
flags.DEFINE_multi_string(
    "origin", [], "Origin whose pages may send requests to this server from a browser (CORS)."
)
define_integer("max_body", 1 << 20, "Maximum size of a request's body, in bytes.", lower_bound=1)
define_integer(
    "max_waiting", 2_000, "Maximum number of waiting lines of all clients.", lower_bound=1
)
flags.DEFINE_float(
    "max_seconds", 60.0, "Maximum time from a request to its answer, in seconds.", lower_bound=0.1
)
flags.DEFINE_float(
    "max_idle",
    75.0,
    "Maximum time between two requests on a connection, in seconds; set it higher than "
    "the load balancer's.",
    lower_bound=0.1,
)
flags.register_validator("max_seconds", math.isfinite, "expected a finite number")
flags.register_validator("max_idle", math.isfinite, "expected a finite number")

logger = logging.getLogger(__name__)


@cli.command
def main() -> None:
    """Load the model, compile, and answer until a signal comes."""
    folder, _, config = trained_run()
    token, origins = _token(), _origins()
    try:
        from jax_transformer.serving import server
        from jax_transformer.serving.app import make_app
        from jax_transformer.serving.guard import Access, Limits
        from jax_transformer.serving.service import Service
    except ImportError as error:
        raise InputError(
            f"serving: expected the packages of the extra serve, found them incomplete ({error}); "
            f"install them with {install_command('serve')}"
        ) from None
    where = server.bind_all(FLAGS.host, FLAGS.port)  # first, so that a wrong one is refused at once
    prepare_process(searches=True)
    limits = Limits(
        body_bytes=FLAGS.max_body,
        seconds=FLAGS.max_seconds,
        idle=FLAGS.max_idle,
        waiting=FLAGS.max_waiting,
    )
    model = load_models(folder)
    service = Service(model, config, most_waiting=limits.waiting)
    with Progress("compiling", None, "shapes") as progress:
        for _ in service.warm_up():
            progress.update(1)
    host, port = where[0].getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    ready = f"serving     {model.description} at http://{shown}:{port}; Ctrl-C ends"
    local = token is None and ipaddress.ip_address(host).is_loopback
    if token is None and not local:
        logger.warning(
            f"--host={FLAGS.host} without --token_file: anyone who can reach this address gets "
            "answers; give --token_file, or let a proxy decide who may"
        )
    access = Access(token=token, origins=origins, local=local, names=[FLAGS.host])
    ours = make_app(service, limits, access)
    server.run(ours, where, limits, on_ready=lambda: logger.info(ready))
    logger.info("serving     ended")


def _origins() -> list[str]:
    """Return the values of --origin. Raises InputError for one that no browser sends."""
    form = r"\*|[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?"
    for origin in FLAGS.origin:
        usual = re.fullmatch("http://.*:80|https://.*:443", origin)  # ports that browsers leave out
        if usual or not re.fullmatch(form, origin):
            raise InputError(
                f"--origin={origin}: expected an origin as browsers write it, such as "
                "https://site.example or http://localhost:3000, without a path; change it"
            )
    return FLAGS.origin


def _token() -> str | None:
    """Return the token of --token_file. Raises InputError if the file has none."""
    if not FLAGS.token_file:
        return None
    check_regular(FLAGS.token_file, once=True)
    with open(FLAGS.token_file, encoding="utf-8-sig", errors="replace") as file:
        token = file.readline().strip()
    if not (token and token.isascii() and token.isprintable()):
        raise InputError(
            f"--token_file={FLAGS.token_file}: expected a first line of printable ASCII "
            "characters, found none; write a token into it"
        )
    return token


if __name__ == "__main__":
    cli.run(main)
