"""What clients may send, and how each mistake is answered, over real connections."""

import resource
import signal
import socket
import threading
import time
from types import SimpleNamespace

import pytest
from refusals import refusal
from small_run import write_run

import jax_transformer as jt
from jax_transformer.decoding.line_search import not_finite
from jax_transformer.serving.guard import Access, Limits

pytest.importorskip("fastapi", reason="serves: pip install -e '.[serve]'")
pytest.importorskip("httpx")

from servers import Shouting, served

LIMITS = Limits(body_bytes=20_000)
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return jt.load(write_run(tmp_path_factory.mktemp("runs") / "demo"))


@pytest.fixture
def service(model):
    return Shouting(model, model.config, most_waiting=4)


@pytest.fixture
def client(service):
    with served(service, LIMITS) as (client, _):
        yield client


def test_each_line_has_its_outputs_and_the_model_is_described(client):
    answer = client.post("/translate", json={"lines": ["a b", "", "c"], "n_best": 2})
    texts = [[output["text"] for output in line] for line in answer.json()["outputs"]]
    assert texts == [["A B", "A B"], [], ["C", "C"]]
    assert client.post("/score", json={"sources": ["a", ""], "targets": ["b", "c"]}).json() == {
        "scores": [{"log_prob": -1, "num_tokens": 1}, {"log_prob": None, "num_tokens": None}]
    }
    everything = {"alignments": True, "token_scores": True, "samples": 3}
    (line,) = client.post("/translate", json={"lines": ["a"], **everything}).json()["outputs"]
    assert len(line) == 3
    assert line[0]["alignment"] == [[0, 0]]
    assert line[0]["tokens"] == [{"piece": "</s>", "log_prob": -0.5}]
    (described,) = client.get("/models").json()["models"]
    assert described["max_tokens"] == 11
    assert client.get("/health").json() == {"status": "ok"}
    assert client.post("/attention", json={"source": "we know"}).text == "<p>page</p>"
    assert client.post("/parse", json={"lines": ["a"]}).status_code == 404


LONG = b"the door " * 9
MISTAKES = [
    ("/translate", b'{"lines": ["a"', 400, "JSON"),
    ("/translate", b'{"lines": ["\xff"]}', 400, "body"),
    ("/translate", b'{"lines": ["\\ud800"]}', 422, "lines[0]: "),
    ("/translate", b"", 422, "body"),
    ("/translate", b"[" * 9_000, 400, "body"),
    ("/translate", b"x" * 20_001, 413, "20,000 bytes"),
    ("/translate", b'{"lines": ["a"], "\\ud800": 1}', 422, "body: "),
    ("/translate", b'{"LINES": ["a"]}', 422, "did you mean lines?"),
    ("/translate", b'{"lines": []}', 422, "lines: expected at least 1 of them, found 0"),
    ("/translate", b'{"lines": [%s""]}' % (b'"",' * 256), 422, "at most 256 of them, found 257"),
    ("/translate", b'{"lines": ["%s"]}' % (b"a" * 10_001), 422, "10,000 characters, found 10,0"),
    ("/translate", b'{"lines": ["a", "b", 3]}', 422, "lines[2]: expected a string, found 3"),
    ("/translate", b'{"lines": ["a", "b\\nc"]}', 422, "lines[1]: expected one line"),
    ("/translate", b'{"lines": ["%s"]}' % LONG, 422, "lines[0]: expected"),
    ("/score", b'["a"]', 422, "sources, targets"),
    ("/score", b'{"sources": ["a"], "targets": ["%s"]}' % LONG, 422, "targets[0]"),
    ("/score", b'{"sources": ["a"], "targets": ["a", "b"]}', 422, "expected a target for each"),
    ("/score", b'{"sources": ["a\\rb"], "targets": ["c"]}', 422, "sources[0]: expected one"),
    ("/attention", b'{"source": "a\\nb"}', 422, "source: expected one line"),
    ("/attention", b'{"source": "%s"}' % LONG, 422, "source: expected at most"),
    ("/nothing%1b%0a", b"", 404, "path"),
    ("/translate?n_best=2", b'{"lines": ["a"]}', 422, "query"),
    *(
        ("/translate", b'{"lines": ["a"], ' + options + b"}", status, names)
        for options, status, names in (
            (b'"n_bets": 2', 422, "n_bets"),
            (b'"top_p": NaN, "samples": 2', 422, "top_p"),
            (b'"n_best": 9', 422, "n_best=9: expected at most"),
            (b'"seed": 3', 422, "seed=3 requires samples"),
            (b'"seed": %s' % (b"9" * 5_000), 400, "too long"),
            (b'"samples": -1', 422, "samples: expected at least 0, f"),
            (b'"without": ["%s"]' % (b"a" * 41), 422, "without"),
            (b'"without": ["a"%s]' % (b', "a"' * 8), 422, "without"),
            (b'"prefixes": ["a", "b"]', 422, "prefixes"),
            (b'"prefixes": ["b\\u2028c"]', 422, "prefixes[0]: expected one line"),
            (b'"prefix": ["b"]', 422, "did you mean prefixes?"),
            (b'"num_beams": 2', 422, "--set decoding.beam_size="),
            (b'"max_new_tokens": 5', 422, "decoding.max_extra_length="),
        )
    ),
    ("/translate", b'{"lines": [%s"a"], "samples": 64}' % (b'"a",' * 60), 422, "outputs"),
]


def test_a_mistake_is_answered_in_one_line(client):
    for path, body, status, names in MISTAKES:
        answer = client.post(path, content=body, headers=JSON)
        assert answer.status_code == status, body[:100]
        (error,) = answer.json().values()
        assert names in error
        assert "\n" not in error
    assert client.post("/translate", json={"lines": ["a"]}).status_code == 200


def test_a_method_that_is_not_allowed_is_answered_with_those_that_are(client):
    for method, path, allowed in (
        ("GET", "/translate", "POST"),
        ("HEAD", "/translate", "POST"),
        ("OPTIONS", "/health", "GET, HEAD"),
        ("OPTIONS", "/openapi.json", "GET, HEAD"),
    ):
        answer = client.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
        assert method == "HEAD" or allowed in answer.json()["error"]


def test_head_is_answered_as_get_without_the_content(client):
    for path in ("/", "/health", "/models", "/metrics", "/openapi.json"):
        answer, whole = client.head(path), client.get(path)
        assert answer.status_code == 200
        assert answer.content == b""
        for name in ("content-type", *(["content-length"] if path != "/metrics" else [])):
            assert answer.headers[name] == whole.headers[name]


def test_a_slash_at_the_end_is_another_path_and_leads_nowhere(client):
    for path in ("/health/", "/translate/"):
        answer = client.get(path, headers={"host": "evil.example"}, follow_redirects=False)
        assert answer.status_code == 404
        assert "location" not in answer.headers
    with connection(client) as stream:  # httpx would leave out a slash
        stream.sendall(b"GET //evil.example/health/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = stream.recv(1_000)
        assert b" 404 " in answer
        assert b"location" not in answer.lower()


def test_a_body_is_json_whatever_it_is_called_but_not_compressed(client):
    for kind in (None, "application/x-www-form-urlencoded", "application/json; charset=x"):
        headers = {} if kind is None else {"content-type": kind}
        answer = client.post("/translate", content=b'{"lines": ["a"]}', headers=headers)
        assert answer.json()["outputs"][0][0]["text"] == "A"
    for coding, status in (("gzip", 415), ("br", 415), ("identity", 200)):
        headers = {"content-encoding": coding, **JSON}
        answer = client.post("/translate", content=b'{"lines": ["a"]}', headers=headers)
        assert answer.status_code == status
        assert status == 200 or coding in answer.json()["error"]


@pytest.mark.parametrize("pause", [0.0, 0.1])
def test_a_request_that_offers_http_2_keeps_its_body(client, pause):
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n"
    head, _, body = request(b'{"lines": ["a"]}', 16).partition(b"\r\n\r\n")
    with connection(client) as stream:
        stream.sendall(head + b"\r\n" + offer + b"\r\n")
        time.sleep(pause)
        stream.sendall(body)
        answer = b""
        while not answer.endswith(b"}") and (part := stream.recv(10_000)):
            answer += part
    assert answer.startswith(b"HTTP/1.1 200")
    assert b'"text":"A"' in answer


def test_others_are_answered_while_a_long_text_is_read(client, service, monkeypatch):
    reading, go = threading.Event(), threading.Event()
    encode = service.model.vocabulary.encode_batch

    def slow(lines):
        reading.set()
        assert go.wait(60)
        return encode(lines)

    monkeypatch.setattr(service.model.vocabulary, "encode_batch", slow)
    for request in (
        {"lines": ["we know " * 600]},
        {"lines": ["we"], "prefixes": ["we know " * 600]},
    ):
        reading.clear()
        go.clear()
        answers = []
        thread = threading.Thread(
            target=lambda: answers.append(client.post("/translate", json=request))  # noqa: B023
        )
        thread.start()
        assert reading.wait(60)
        try:
            assert client.get("/health", timeout=30).status_code == 200
        finally:
            go.set()
            thread.join()
        assert answers[0].status_code == 422


def test_a_large_body_of_untold_length_is_refused(client):
    chunks = (b"x" * 65_536 for _ in range(16))
    answer = client.post("/translate", content=chunks, headers=JSON)
    assert answer.status_code == 413
    assert "20,000 bytes" in answer.json()["error"]


def test_requests_that_come_while_others_are_done_share_a_batch(client, service):
    service.go.clear()
    answers = []

    def ask(line):
        found = client.post("/translate", json={"lines": [line]}).json()["outputs"]
        answers.append((line, found[0][0]["text"]))

    threads = [threading.Thread(target=ask, args=(line,)) for line in "abcde"]
    threads[0].start()
    until(lambda: service.seen)
    for thread in threads[1:]:
        thread.start()
    until(lambda: service.batcher.waiting == 4)
    full = client.post("/translate", json={"lines": ["f"]})
    assert (full.status_code, full.headers["retry-after"]) == (429, "1")
    service.go.set()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [(line, line.upper()) for line in "abcde"]
    assert [len(items) for items in service.seen] == [1, 4]
    answered = 'jax_transformer_requests_total{path="/translate",status="200"} 5.0'
    until(lambda: answered in client.get("/metrics").text)
    text = client.get("/metrics").text
    assert 'jax_transformer_requests_total{path="/translate",status="429"} 1.0' in text
    assert "jax_transformer_lines_total 5.0" in text
    assert "jax_transformer_batch_lines_count 2.0" in text


def test_work_that_takes_too_long_is_given_up_and_said(service):
    service.go.clear()
    with served(service, Limits(seconds=0.5)) as (client, _):
        first = threading.Thread(target=lambda: client.post("/translate", json={"lines": ["a"]}))
        first.start()
        until(lambda: service.seen)
        answer = client.post("/translate", json={"lines": ["b"]})
        assert answer.status_code == 503
        assert "within 0.5 seconds" in answer.json()["error"]
        service.go.set()
        first.join()
    assert service.seen == [[item] for item in service.seen[0]]  # b was never begun


def test_the_work_of_a_client_who_leaves_is_not_done(client, service):
    service.go.clear()
    first = threading.Thread(target=lambda: client.post("/translate", json={"lines": ["a"]}))
    first.start()
    until(lambda: service.seen)
    body = b'{"lines": ["left"]}'
    with connection(client) as left:
        left.sendall(request(body, len(body)))
        until(lambda: service.batcher.waiting == 1)
    until(lambda: '{path="/translate",status="left"} 1.0' in client.get("/metrics").text)
    service.go.set()
    first.join()
    assert client.post("/translate", json={"lines": ["b"]}).status_code == 200
    assert "left" not in str(service.seen)


def test_a_body_that_comes_too_slowly_is_refused_and_hinders_nobody(service):
    limits = Limits(body_seconds=1.0)
    with served(service, limits) as (client, _), connection(client) as slow:
        slow.sendall(request(b'{"lines"', 1_000))
        assert client.post("/translate", json={"lines": ["a"]}).status_code == 200
        assert slow.recv(1_000).startswith(b"HTTP/1.1 408 ")


def test_a_body_that_breaks_off_or_is_no_request_hinders_nobody(client):
    with connection(client) as cut:
        cut.sendall(request(b'{"lines"', 1_000))
    with connection(client) as nonsense:
        nonsense.sendall(b"\x16\x03\x01 \x00 nonsense\r\n\r\n")
        assert nonsense.recv(1_000).startswith(b"HTTP/1.1 400 ")
    assert client.post("/translate", json={"lines": ["a"]}).status_code == 200


def test_a_bug_is_logged_without_what_the_client_sent(client, service, caplog):
    service.batcher._work = lambda kind, items: {}[str(items)]
    answer = client.post("/translate", json={"lines": ["secret"]})
    assert answer.status_code == 500
    assert "KeyError" in answer.json()["error"]
    until(lambda: "KeyError" in caplog.text)
    assert "secret" not in caplog.text + answer.text


def test_a_model_whose_scores_are_no_numbers_is_a_fault_of_the_server(client, service, caplog):
    def fail(kind, items):
        raise not_finite("lines[0]", "an output")

    service.batcher._work = fail
    answer = client.post("/translate", json={"lines": ["a"]})
    assert answer.status_code == 500
    assert "scores are not finite" in answer.json()["error"]
    until(lambda: "scores are not finite" in caplog.text)


def test_only_who_has_the_token_is_answered(model):
    with served(Shouting(model, model.config), LIMITS, token="s3cret") as (client, _):
        request, words = {"url": "/translate", "json": {"lines": ["a"]}}, set[str]()
        for wrong in ("", "Bearer s3cre", "Basic abc"):
            headers = {"authorization": wrong} if wrong else {}
            answer = client.post(**request, headers=headers)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
            assert client.get("/metrics", headers=headers).status_code == 401
            words.add(answer.json()["error"])
        assert len(words) == 3  # a missing token, a wrong one, another scheme
        for scheme in ("bearer ", "Bearer  "):
            right = {"authorization": f"{scheme}s3cret"}
            assert client.post(**request, headers=right).status_code == 200
        twice = [("authorization", "Bearer s3cret")] * 2
        assert client.post(**request, headers=twice).status_code == 401
        assert client.post("/translate?token=s3cret", json={"lines": ["a"]}).status_code == 401
        assert client.get("/health").status_code == client.get("/").status_code == 200
        described = client.get("/openapi.json", headers=right).json()
        (scheme,) = described["components"]["securitySchemes"].items()
        assert scheme[1] == {"type": "http", "scheme": "bearer"}
        assert described["security"] == [{scheme[0]: []}]
        without = [path for path, item in described["paths"].items() if "security" in str(item)]
        assert sorted(without) == ["/", "/health"]


def test_pages_of_other_origins_are_answered_only_if_they_were_named(client, model):
    asks = {"origin": "https://a.example", "access-control-request-method": "POST"}
    assert "access-control-allow-origin" not in client.options("/translate", headers=asks).headers
    access = {"origins": ["https://a.example"], "token": "s3cret"}
    with served(Shouting(model, model.config), LIMITS, **access) as (other, _):
        answer = other.options("/translate", headers=asks)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "https://a.example"
        assert "POST" in answer.headers["access-control-allow-methods"]
        refused = other.post("/translate", json={"lines": ["a"]}, headers=asks)
        assert refused.status_code == 401  # and the page may read why
        assert refused.headers["access-control-allow-origin"] == "https://a.example"


def test_a_page_of_another_site_is_refused_and_the_server_s_own_is_not(client):
    own = str(client.base_url).rstrip("/")
    for headers, status in (
        ({"origin": own}, 200),
        ({"origin": "https://proxied.example", "sec-fetch-site": "same-origin"}, 200),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "https://evil.example", "sec-fetch-site": "cross-site"}, 403),
        ({"origin": "null"}, 403),
    ):
        answer = client.post("/translate", json={"lines": ["a"]}, headers=headers)
        assert answer.status_code == status


def test_a_page_whose_name_only_leads_here_is_not_answered(model):
    service = Shouting(model, model.config)
    with served(service, LIMITS, local=True, names=["My-Machine"]) as (client, _):
        request = {"url": "/translate", "json": {"lines": ["a"]}}
        assert client.post(**request).status_code == 200
        ours = "localhost:80", "[::1]:8", "127.0.1.1", "my-machine:80", "LOCALHOST."
        others = "evil.example", "127.0.0.1.evil.example", "localhost@evil", "10.0.0.1", ""
        for host in (*ours, *others):
            answer = client.post(**request, headers={"host": host})
            assert answer.status_code == (200 if host in ours else 400)
        with connection(client) as old:  # HTTP/1.0 has no header Host, and no browser speaks it
            old.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            assert b" 200 " in old.recv(1_000)
        with connection(client) as two:
            two.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
            assert b" 400 " in two.recv(1_000)


def test_while_it_stops_new_requests_get_503_and_begun_ones_their_answer(service):
    service.go.clear()
    answers = []
    with served(service, LIMITS) as (client, app):
        begun = threading.Thread(
            target=lambda: answers.append(client.post("/translate", json={"lines": ["a"]}))
        )
        begun.start()
        until(lambda: service.seen)
        app.stopping = True
        for answer in (client.get("/health"), client.post("/translate", json={"lines": ["b"]})):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        service.go.set()
        begun.join()
    assert answers[0].status_code == 200


def test_a_system_that_refuses_an_unlimited_number_of_connections_is_served(monkeypatch):
    from jax_transformer.serving import server

    def limit(_: int, limits: tuple[int, int]) -> None:  # macOS' setrlimit(2)
        if limits[0] == resource.RLIM_INFINITY:
            raise ValueError("current limit exceeds maximum limit")
        found.append(limits)

    found = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", limit)
    monkeypatch.setattr(server._Server, "run", lambda *_, **__: None)
    server.run(lambda *_: None, [], LIMITS)  # type: ignore[arg-type]
    assert found == [(10_240, resource.RLIM_INFINITY)]


def test_a_signal_before_the_server_has_begun_ends_it(monkeypatch):
    from jax_transformer.serving import server

    def signalled(self: server._Server, **_: object) -> None:
        signal.raise_signal(signal.SIGTERM)
        found.append(self.should_exit)

    found = []
    monkeypatch.setattr(server._Server, "run", signalled)
    server.run(SimpleNamespace(), [], LIMITS)  # type: ignore[arg-type]
    assert found == [True]


def test_an_address_at_which_another_program_has_begun_to_listen_is_refused(service):
    from jax_transformer.serving import server
    from jax_transformer.serving.app import make_app

    def start():
        ours = server.bind(*other.getsockname())
        other.listen()  # while we compile
        server.run(make_app(service, LIMITS, Access()), [ours], LIMITS)

    with server.bind("127.0.0.1", 0) as other:
        assert "free address" in refusal(start)


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)


def connection(client):
    return socket.create_connection((client.base_url.host, client.base_url.port), timeout=60)


def request(body, length):
    head = "POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {length}\r\n\r\n".encode() + body


@pytest.mark.slow
def test_the_server_answers_as_it_describes_itself_whatever_is_sent(service):
    schemathesis = pytest.importorskip("schemathesis", reason="pip install schemathesis")
    from hypothesis import HealthCheck, given, settings

    from jax_transformer.serving.app import make_app

    app = make_app(service, Limits(body_bytes=1 << 26), Access())
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    checks = schemathesis.checks
    checks.load_all_checks()
    # Values that are in range each may make no sense together, so valid requests may get 422.
    held = [
        checks.not_a_server_error, *(checks.CHECKS.get_one(name) for name in (
            "status_code_conformance", "content_type_conformance", "response_schema_conformance",
            "negative_data_rejection",
        )),
    ]  # fmt: skip
    modes = schemathesis.GenerationMode
    answered = set()
    for operation in (result.ok() for result in schema.get_all_operations()):
        for mode in modes.POSITIVE, modes.NEGATIVE:

            @settings(
                max_examples=20,
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),  # pyright: ignore
            )
            @given(case=operation.as_strategy(mode))
            def check(case):
                response = case.call()
                case.validate_response(response, checks=held)
                answered.add((case.method, case.path, response.status_code))

            if mode == modes.POSITIVE or operation.body:
                check()
    posts = {(path, status) for method, path, status in answered if method == "POST"}
    assert {("/translate", 200), ("/translate", 422), ("/score", 200), ("/score", 422)} <= posts
