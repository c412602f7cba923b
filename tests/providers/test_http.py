"""Test the retry table, row by row, with the exact pauses."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes.limits import LAST_RESORT

from gpuform.providers import errors
from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.http import ApiClient, ErrorAnswers, Retry, parse_retry_after
from gpuform.providers.http.client import find_proxy, read_proxies
from gpuform.providers.together.client import is_out_of_stock

Step = int | httpx.Response | type[httpx.TransportError]
KEY = "key-that-must-not-show"


class Platform:
    """Answer with the steps one after another, and repeat the last one."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if isinstance(step, type):
            raise step(f"broken: {KEY}", request=request)
        return httpx.Response(step, json={}) if isinstance(step, int) else step


@pytest.fixture
def send_request(call: ProviderContext) -> Callable[..., Any]:
    """Return a function that sends a request, and returns the pauses or the error."""

    def send_request(
        platform: Platform, retry: Retry = Retry.SAFE, method: str = "GET", **kwargs: Any
    ) -> Any:
        client = ApiClient(
            "http://platform.test/v1",
            errors=ErrorAnswers(
                "acme",
                secrets=(KEY,),
                secret_members=("password", "variables"),
                hints={403: "use an Admin key"},
                is_capacity=is_out_of_stock,
            ),
            headers=lambda: {"Authorization": f"Bearer {KEY}"},
            transport=httpx.MockTransport(platform),
            jitter=lambda longest: longest,
        )
        with use_context(call):
            return client.request(method, "/things", retry=retry, **kwargs)

    return send_request


def _list_pauses(call: ProviderContext) -> list[float]:
    pauses: list[float] = call.clock.pauses  # type: ignore[attr-defined]
    return pauses


TOO_MANY = httpx.Response(429, headers={"Retry-After": "3"})
UNREACHED = [httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError]
UNANSWERED = [
    httpx.ReadTimeout,
    httpx.ReadError,
    httpx.WriteTimeout,
    httpx.WriteError,
    httpx.CloseError,
    httpx.RemoteProtocolError,
]


@pytest.mark.parametrize("step", [*UNREACHED, *UNANSWERED, 429, 502, 503, 504])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_safe_request_is_retried(
    send_request: Callable[..., Any], call: ProviderContext, method: str, step: Step
) -> None:
    platform = Platform(step, step, 200)
    assert send_request(platform, method=method) == {}
    assert len(platform.requests) == 3
    assert _list_pauses(call) == [0.5, 1.0]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"error": "STATE_CONFLICT", "message": "busy", "code": 409}, "STATE_CONFLICT"),
        ({"error": {"message": "busy", "code": "locked"}}, "locked"),
        ({"error": "busy"}, None),
        ({"error": "busy", "code": 409}, None),
    ],
)
def test_error_codes_are_words(
    send_request: Callable[..., Any], body: Any, code: str | None
) -> None:
    with pytest.raises(errors.Conflict, match="busy") as caught:
        send_request(Platform(httpx.Response(409, json=body)))
    assert caught.value.code == code


def test_errors_do_not_repeat_sent_secrets(send_request: Callable[..., Any]) -> None:
    response = httpx.Response(400, json={"error": "no hunter2, no token-4711, no TOKEN"})
    sent = {"password": "hunter2", "variables": {"TOKEN": "token-4711", "n": 1}, "x": {}}
    with pytest.raises(errors.InvalidRequest) as caught:
        send_request(Platform(response), method="PUT", body=sent)
    assert caught.value.message.endswith("no [secret], no [secret], no TOKEN")


@pytest.mark.parametrize("step", UNREACHED)
def test_an_unsent_create_is_retried(
    send_request: Callable[..., Any], call: ProviderContext, step: Step
) -> None:
    assert send_request(Platform(step, 200), Retry.CREATE, "POST") == {}
    assert _list_pauses(call) == [0.5]


def test_a_create_with_retry_after_is_retried(
    send_request: Callable[..., Any], call: ProviderContext
) -> None:
    assert send_request(Platform(TOO_MANY, 200), Retry.CREATE, "POST") == {}
    assert _list_pauses(call) == [3.0]


def test_a_create_with_retry_after_is_not_retried_if_it_may_have_had_its_effect(
    send_request: Callable[..., Any], call: ProviderContext
) -> None:
    platform = Platform(TOO_MANY, 200)
    with (
        call.run_before_each_change(lambda: None, can_repeat=lambda: False),
        pytest.raises(errors.RateLimited),
    ):
        send_request(platform, Retry.CREATE, "POST")
    assert len(platform.requests) == 1


@pytest.mark.parametrize(
    ("step", "error"),
    [
        *((step, errors.UnknownOutcome) for step in UNANSWERED),
        (429, errors.RateLimited),
        (500, errors.ServerError),
        (502, errors.ServerError),
        (503, errors.ServerError),
        (504, errors.ServerError),
        (408, errors.ApiError),
        (409, errors.Conflict),
    ],
)
def test_a_create_that_may_have_been_sent_is_not_retried(
    send_request: Callable[..., Any], step: Step, error: type[Exception]
) -> None:
    platform = Platform(step, 200)
    with pytest.raises(error):
        send_request(platform, Retry.CREATE, "POST")
    assert len(platform.requests) == 1


@pytest.mark.parametrize("step", [*UNANSWERED, 500, 502, 503, 504])
def test_a_create_that_may_have_been_sent_ends_the_retries(
    send_request: Callable[..., Any], step: Step
) -> None:
    platform = Platform(httpx.ConnectError, TOO_MANY, step, 200)
    with pytest.raises((errors.UnknownOutcome, errors.ServerError)):
        send_request(platform, Retry.CREATE, "POST")
    assert len(platform.requests) == 3


@pytest.mark.parametrize("step", [httpx.ConnectError, httpx.ReadError, 429, 503])
def test_retry_never_sends_once(send_request: Callable[..., Any], step: Step) -> None:
    platform = Platform(step, 200)
    with pytest.raises(errors.GpuformError):
        send_request(platform, Retry.NEVER)
    assert len(platform.requests) == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, errors.InvalidRequest),
        (401, errors.AuthError),
        (402, errors.NoCredit),
        (403, errors.PermissionDenied),
        (404, errors.ForeignAnswer),
        (409, errors.Conflict),
        (422, errors.InvalidRequest),
        (302, errors.ApiError),
        (500, errors.ServerError),
        (501, errors.ServerError),
    ],
)
def test_other_answers_are_errors_at_once(
    send_request: Callable[..., Any], status: int, error: type[errors.ApiError]
) -> None:
    platform = Platform(status)
    with pytest.raises(errors.ApiError) as caught:
        send_request(platform)
    assert type(caught.value) is error
    assert (caught.value.status, caught.value.path) == (status, "/things")
    assert len(platform.requests) == 1


def test_the_backoff_grows_up_to_five_attempts(
    send_request: Callable[..., Any], call: ProviderContext
) -> None:
    platform = Platform(503)
    with pytest.raises(errors.ServerError):
        send_request(platform)
    assert len(platform.requests) == 5
    assert _list_pauses(call) == [0.5, 1.0, 2.0, 4.0]


def test_a_requested_pause_is_capped(
    send_request: Callable[..., Any], call: ProviderContext
) -> None:
    send_request(Platform(httpx.Response(503, headers={"Retry-After": "86400"}), 200))
    assert _list_pauses(call) == [60.0]


def test_no_pause_exceeds_the_deadline(
    send_request: Callable[..., Any], call: ProviderContext
) -> None:
    call.start_deadline(2)
    platform = Platform(TOO_MANY, 200)
    with pytest.raises(errors.RateLimited):
        send_request(platform)
    assert (len(platform.requests), _list_pauses(call)) == (1, [])


def test_an_interruption_ends_a_pause(
    send_request: Callable[..., Any], call: ProviderContext
) -> None:
    call.cancelled.set()
    with pytest.raises(errors.Cancelled) as caught:
        send_request(Platform(503, 200))
    assert caught.value.has_unanswered_attempt


@pytest.mark.parametrize(
    ("first", "is_definite"),
    [(httpx.ReadError, False), (504, False), (httpx.ConnectError, True), (429, True)],
)
def test_a_refused_repetition_proves_nothing_about_an_unanswered_attempt(
    send_request: Callable[..., Any], first: Step, is_definite: bool
) -> None:
    with pytest.raises(errors.Conflict) as caught:
        send_request(Platform(first, 409), method="PUT")
    assert caught.value.is_definite is is_definite


def test_an_unsent_repetition_proves_nothing_about_an_unanswered_attempt(
    send_request: Callable[..., Any],
) -> None:
    with pytest.raises(errors.Unreachable) as caught:
        send_request(Platform(httpx.ReadError, httpx.ConnectError), method="PUT")
    assert caught.value.has_unanswered_attempt


def test_a_dying_process_is_no_platform_error(send_request: Callable[..., Any]) -> None:
    class Dying(Platform):
        def __call__(self, request: httpx.Request) -> httpx.Response:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        send_request(Dying(200))


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("soon", None),
        ("Mon, 12 Jan 1970 13:47:40 GMT", 60.0),
        ("Mon, 12 Jan 1970 13:00:00 GMT", 0.0),
    ],
)
def test_retry_after_is_parsed(
    call: ProviderContext, header: str | None, seconds: float | None
) -> None:
    with use_context(call):
        assert parse_retry_after(header) == seconds


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "no such region", "code": "bad"}}, ": no such region"),
        ({"error": "no such region"}, ": no such region"),
        ({"message": "no such region"}, ": no such region"),
        ({"error": {"message": "a\n  b"}}, ": a b"),
        ({"detail": "withheld"}, ""),
        ({"error": {"message": 7}}, ""),
        (["withheld"], ""),
        ({"error": {"message": "x" * 1000}}, ": " + "x" * 300 + "..."),
        ({"error": {"message": f"bad key {KEY}"}}, ": bad key [secret]"),
        ({"errors": [{"detail": "one"}, {"detail": ["two", KEY]}]}, ": one; two; [secret]"),
        ({"errors": [{"detail": {"x": "withheld"}}, "withheld"]}, ""),
    ],
)
def test_error_messages_quote_the_platform(
    send_request: Callable[..., Any], body: Any, message: str
) -> None:
    with pytest.raises(errors.InvalidRequest) as caught:
        send_request(Platform(httpx.Response(400, json=body)))
    assert str(caught.value) == f"acme: GET /things answered 400{message}"


@pytest.mark.parametrize(
    ("content_type", "message"), [("text/plain; charset=utf-8", ": down"), ("text/html", "")]
)
def test_plain_text_answers_are_shown_and_web_pages_are_not(
    send_request: Callable[..., Any], content_type: str, message: str
) -> None:
    answer = httpx.Response(400, text="down", headers={"Content-Type": content_type})
    with pytest.raises(errors.InvalidRequest) as caught:
        send_request(Platform(answer))
    assert str(caught.value) == f"acme: GET /things answered 400{message}"


def test_errors_have_code_request_id_and_hint(send_request: Callable[..., Any]) -> None:
    body = {"error": {"message": "no", "type": "permission_error"}}
    with pytest.raises(errors.PermissionDenied) as caught:
        send_request(Platform(httpx.Response(403, json=body, headers={"X-Request-Id": "r-1"})))
    assert (caught.value.code, caught.value.request_id) == ("permission_error", "r-1")
    assert str(caught.value).endswith("\n  use an Admin key")


@pytest.mark.parametrize(
    ("message", "error"),
    [("Out of stock", errors.OutOfCapacity), ("volume is bound", errors.Conflict)],
)
def test_the_message_of_a_409_decides_its_class(
    send_request: Callable[..., Any], message: str, error: type[Exception]
) -> None:
    with pytest.raises(errors.Conflict) as caught:
        send_request(Platform(httpx.Response(409, json={"error": {"message": message}})))
    assert type(caught.value) is error


@pytest.mark.parametrize("status", [200, 404])
def test_a_web_page_is_no_answer_of_the_platform(
    send_request: Callable[..., Any], status: int
) -> None:
    with pytest.raises(errors.ForeignAnswer, match=r"platform\.test") as caught:
        send_request(Platform(httpx.Response(status, html=f"<html>{KEY}")))
    assert f"answered {status} with text/html" in caught.value.message
    assert KEY not in str(caught.value)
    assert not caught.value.is_definite


@given(
    body=st.one_of(
        st.none(),
        st.text(),
        st.lists(st.integers()),
        st.dictionaries(st.sampled_from(["error", "message", "detail", "errors"]), st.text()),
    )
)
def test_a_404_counts_only_in_the_platforms_own_form(body: Any) -> None:
    """Proxies answer with other JSON."""
    answers = ErrorAnswers(
        "acme", says_gone=lambda error_body: error_body.get("error") == {"code": "GONE"}
    )
    request = httpx.Request("GET", "http://platform.test/things")
    for content, kind in (
        (body, errors.ForeignAnswer),
        ({"error": {"code": "GONE"}}, errors.NotFound),
    ):
        response = httpx.Response(404, json=content, request=request)
        assert type(answers.build_error(response, "GET", "/things")) is kind


def test_an_empty_answer_is_none(send_request: Callable[..., Any]) -> None:
    assert send_request(Platform(httpx.Response(204))) is None


def test_a_delete_can_have_a_body(send_request: Callable[..., Any]) -> None:
    platform = Platform(200)
    send_request(platform, method="DELETE", body={"ids": [1]}, params={"a": "b"})
    (request,) = platform.requests
    assert (request.method, request.content) == ("DELETE", b'{"ids": [1]}')
    assert request.headers["content-type"] == "application/json"
    assert str(request.url) == "http://platform.test/v1/things?a=b"


def test_every_request_is_logged_as_one_line_without_secrets(
    send_request: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        send_request(Platform(200), method="POST", body={"kube_config": "body-that-must-not-show"})
    lines = [record.getMessage() for record in caplog.records if record.name == "gpuform.http"]
    assert len(lines) == 1
    assert lines[0].startswith("POST /things -> 200 in ")
    assert "must-not-show" not in caplog.text


@pytest.mark.parametrize("step", [*UNREACHED, *UNANSWERED])
def test_library_errors_and_their_texts_are_converted(
    send_request: Callable[..., Any], step: Step
) -> None:
    with pytest.raises(errors.GpuformError) as caught:
        send_request(Platform(step), Retry.NEVER)
    assert KEY not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_client_can_be_closed_and_used_again() -> None:
    client = ApiClient(
        "http://platform.test",
        errors=ErrorAnswers("acme"),
        transport=httpx.MockTransport(Platform(200)),
    )
    client.close()
    assert client.request("GET", "/x") == {}
    client.close()


def test_requests_of_different_threads_run_concurrently() -> None:
    """Register 72 threads, of which 64 send at once."""
    everyone, asking = 72, 64
    registration, meeting = threading.Barrier(everyone), threading.Barrier(asking)

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/meeting":
                meeting.wait(LAST_RESORT)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = everyone

    with Server(("127.0.0.1", 0), Answer) as server, ThreadPoolExecutor(everyone) as threads:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        client = ApiClient(
            f"http://127.0.0.1:{server.server_address[1]}", errors=ErrorAnswers("acme")
        )
        turn = threading.Lock()

        def send_request(number: int) -> Any:
            with turn:
                client.request("GET", "/known")
            registration.wait(LAST_RESORT)
            return client.request("GET", "/meeting") if number % 9 else {}

        assert list(threads.map(send_request, range(everyone))) == [{}] * everyone
        client.close()
        server.shutdown()


@pytest.mark.parametrize(
    ("environ", "url", "proxy"),
    [
        ({}, "https://api.test", None),
        ({"HTTPS_PROXY": "proxy.test:3128"}, "https://api.test", "http://proxy.test:3128"),
        ({"HTTPS_PROXY": "http://proxy.test"}, "http://api.test", None),
        ({"ALL_PROXY": "http://proxy.test"}, "http://api.test", "http://proxy.test"),
        ({"https_proxy": "http://a.test", "HTTPS_PROXY": "b"}, "https://api.test", "http://a.test"),
        ({"ALL_PROXY": "http://a.test", "NO_PROXY": ".test"}, "https://api.test", None),
        ({"ALL_PROXY": "http://a.test", "NO_PROXY": "*"}, "https://api.test", None),
        ({"ALL_PROXY": "http://a.test", "NO_PROXY": "x, 127.0.0.1"}, "http://127.0.0.1:8", None),
        ({"ALL_PROXY": "http://a.test", "NO_PROXY": "::1"}, "http://[::1]:80", None),
        ({"ALL_PROXY": "http://a.test", "NO_PROXY": "a.test"}, "https://b.test", "http://a.test"),
    ],
)
def test_the_variables_of_a_run_choose_the_proxy(
    environ: dict[str, str], url: str, proxy: str | None
) -> None:
    assert find_proxy(url, read_proxies(environ)) == proxy
