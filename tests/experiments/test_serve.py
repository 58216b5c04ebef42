"""experiments.serve as a process: real clients, a browser, signals, and what is refused."""

import asyncio
import contextlib
import re
import resource
import signal
import socket
import threading
import time

import pytest
from commands import only_error, started
from refusals import refusal

import jax_transformer as jt
from jax_transformer.errors import InputError

httpx = pytest.importorskip("httpx")
pytest.importorskip("fastapi", reason="serves: pip install -e '.[serve]'")

pytestmark = pytest.mark.slow

MILLISECONDS = 120_000  # that a page may take
LINES = ["a b c", "d e f g", "b", "c d e f", "a g", "g f e"]


@pytest.fixture(scope="module")
def server(trained):
    """(process, address) of a server that is ready."""
    limits = "--max_waiting=300", "--max_seconds=600"
    with started("serve", f"--workdir={trained}", "--port=0", *limits) as process:
        yield process, address(process)


def address(process):
    """The address that the server logs once it is ready."""
    lines = []
    for line in process.stderr:
        lines.append(line)
        if found := re.search(r" at (http://\S+);", line):
            return found[1]
    pytest.fail(f"no address in {''.join(lines)}")


def ask(url, lines, **options):
    return httpx.post(f"{url}/translate", json={"lines": lines, **options}, timeout=300)


def texts(answer):
    return [line[0]["text"] if line else "" for line in answer.json()["outputs"]]


@pytest.mark.release
def test_a_thousand_clients_at_once_get_their_own_translation_or_are_told_to_wait(server, trained):
    _, url = server
    lines = [f"{a} {b} {c}" for a in "abcdefg" for b in "abcdefg" for c in "abcdefg"]
    lines = (lines * 3)[:1_000]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the usual 1,024 may be too few
    expected = dict(zip(lines, jt.load(trained).translate(lines), strict=True))

    async def one(client, line):
        while True:  # as one is told to
            answer = await client.post("/translate", json={"lines": [line]})
            if answer.status_code == 200:
                return texts(answer)[0]
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
            await asyncio.sleep(1)

    async def all_at_once():
        limits = httpx.Limits(max_connections=1_000)
        async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as client:
            return await asyncio.gather(*(one(client, line) for line in lines))

    assert asyncio.run(all_at_once()) == [expected[line] for line in lines]


def test_the_server_of_this_machine_answers_to_no_other_name(server):
    _, url = server
    assert httpx.get(f"{url}/models").status_code == 200
    assert httpx.get(f"{url}/models", headers={"host": "evil.example"}).status_code == 400


def test_the_answer_that_was_begun_is_given_after_sigterm_and_the_exit_status_is_0(
    trained, tmp_path
):
    token = tmp_path / "token"
    token.write_text("s3cret\nthe first line alone counts\n", encoding="utf-8-sig")
    flags = [f"--workdir={trained}", "--port=0", f"--token_file={token}", "--max_seconds=600"]
    flags += ["--max_body=1000", "--origin=https://a.example"]
    with started("serve", *flags) as process:
        url, answers = address(process), []
        assert ask(url, LINES).status_code == 401
        page = httpx.get(f"{url}/health", headers={"origin": "https://a.example"})
        assert page.headers["access-control-allow-origin"] == "https://a.example"
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as client:
            head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\n"
            client.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
            assert b" 401 " in client.recv(1000)
            client.sendall(b"what nobody may read\r\n")  # in place of the length of a chunk
            while client.recv(1000):
                pass  # until it is closed
        known = httpx.Client(headers={"authorization": "Bearer s3cret"}, timeout=300)
        too_long = known.post(f"{url}/translate", json={"lines": ["a" * 1000]})
        assert too_long.status_code == 413
        request = {"lines": LINES * 5, "samples": 64}  # so many that they are several batches
        begun = threading.Thread(
            target=lambda: answers.append(known.post(f"{url}/translate", json=request))
        )
        begun.start()
        while "jax_transformer_lines_total 0.0" in known.get(f"{url}/metrics").text:
            assert not answers, answers[0].text
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
        begun.join()
        assert answers[0].status_code == 200
        written = process.stderr.read()
        assert written.endswith("serving     ended\n")
        assert not any(part in written for part in ("Traceback", "nobody may read"))
        with pytest.raises(httpx.ConnectError):
            ask(url, LINES)


def test_localhost_is_every_address_of_this_machine_that_has_the_name():
    from jax_transformer.serving.server import bind, bind_all

    sockets = bind_all("localhost", 0)
    families = {where.family for where in sockets}
    assert socket.AF_INET in families
    with contextlib.suppress(InputError):  # this machine has no ::1
        bind("::1", 0).close()
        assert socket.AF_INET6 in families
    assert len({where.getsockname()[1] for where in sockets}) == 1
    sockets[0].listen()
    assert "free address" in refusal(bind_all, "localhost", sockets[0].getsockname()[1])
    for where in sockets:
        where.close()


def test_localhost_is_refused_if_another_program_has_one_of_its_addresses():
    from jax_transformer.serving.server import bind, bind_all

    try:
        other = bind("::1", 0)
    except InputError:
        pytest.skip("this machine has no ::1")
    with other:
        other.listen()
        assert "--host=::1" in refusal(bind_all, "localhost", other.getsockname()[1])


def test_what_cannot_be_served_is_refused_before_anything_is_compiled(run, monkeypatch):
    from jax_transformer.serving.service import Service

    monkeypatch.setattr(Service, "warm_up", lambda self: pytest.fail("compiled"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = f"--port={taken.getsockname()[1]}"
        assert "free address" in only_error("serve", f"--workdir={run}", port)
    for path in (run / "averaged").rglob("*"):
        if path.is_file():
            path.write_bytes(b"damaged")
    command = "serve", f"--workdir={run}", "--port=0", "--checkpoint=averaged"
    assert str(run / "averaged") in only_error(*command)


@pytest.mark.release
def test_who_types_on_the_page_sees_the_translation_and_where_it_attends(browser, server):
    _, url = server
    page = browser.new_page()
    page.set_default_timeout(MILLISECONDS)
    wrong = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
    page.goto(url)
    page.wait_for_function("!document.querySelector('#facts').textContent.includes('Asking')")
    hostile = "<b>"
    page.fill("#text", f"\na b c\n\n{hostile}\n")
    page.click("#go")
    page.wait_for_selector("#outputs li >> nth=2")
    sources = page.eval_on_selector_all("#outputs .source", "all => all.map(x => x.textContent)")
    assert sources == ["a b c", hostile]
    assert page.text_content("#outputs li:nth-child(2)") == ""
    assert page.query_selector("#outputs b") is None
    page.click("#outputs li:first-child button")
    inside = page.frame_locator("#attention")
    inside.locator("#map .token").first.wait_for()
    assert "a b c" in inside.locator("dl").inner_text()
    page.fill("#text", "")
    page.click("#go")
    assert "type a sentence" in page.text_content("#error")
    page.focus("#text")
    page.keyboard.insert_text("\n".join(["a b c" + " " * 50] * 256))  # as somebody pastes it
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate("for (const _ of [1, 2]) document.querySelector('#form').requestSubmit()")
    page.wait_for_selector("#outputs li >> nth=255")
    assert asked == [f"{url}/translate"]
    assert not wrong


@pytest.mark.release
@pytest.mark.parametrize(
    "press", [lambda page: page.click("#go"), lambda page: page.press("#token", "Enter")]
)
def test_who_types_a_token_on_the_page_asks_with_one_press(browser, server, press):
    def only_with_token(route):
        known = route.request.headers.get("authorization") == "Bearer s3cret"
        route.continue_() if known else route.fulfill(status=401, json={"error": "none"})

    page = browser.new_page()
    page.set_default_timeout(MILLISECONDS)
    page.route("**/models", only_with_token)
    page.goto(server[1])
    page.fill("#text", "a b c")
    page.focus("#token")
    page.keyboard.type("s3cret")
    press(page)
    page.wait_for_selector("#outputs .source")
    assert page.text_content("#error") == ""


@pytest.mark.release
def test_the_page_asks_a_parser_once_it_knows_it_and_for_each_line_of_what_is_pasted(
    browser, server
):
    asked, page = [], browser.new_page()
    model = {"description": "", "task": "parsing", "source_language": "", "target_language": ""}

    def models(route):
        if route.request.headers.get("authorization"):
            time.sleep(0.5)
            route.fulfill(json={"models": [{**model, "attention": False}]})
        else:
            route.fulfill(status=401, json={"error": "none"})

    def parse(route):
        asked.append(route.request.post_data_json["lines"])
        if len(asked) > 1:
            route.fulfill(status=502, json={"message": "of a gateway"})
        else:
            route.fulfill(json={"outputs": [[{"text": "(TOP)"}]] * 4})

    page.set_default_timeout(MILLISECONDS)
    page.route("**/models", models)
    page.route("**/parse", parse)
    page.goto(server[1])
    page.fill("#text", "a b\u2028c\n\nd")
    page.focus("#token")
    page.keyboard.type("s3cret")
    page.press("#token", "Enter")
    page.wait_for_selector("#outputs .source")
    assert (asked, page.text_content("#error")) == ([["a b", "c", "", "d"]], "")
    page.click("#go")
    page.wait_for_function("document.querySelector('#error').textContent")
    assert page.text_content("#error") == "status 502"
