"""Test that secrets are found in every spelling, and that ordinary text is unchanged."""

import base64
import html
import json
import re
import time
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.platforms.text_encodings import ENCODINGS, LOOSE_ENCODINGS, RARE_ENCODINGS

from gpuform.providers.values import PART, QUOTED, Redactor, redact_request
from gpuform.schemas.safe_text import MASK

BEFORE, AFTER = "the platform cannot take <", "> at this moment"
KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters:
- name: ml-training-eu
  cluster:
    server: https://10.0.0.1:6443
    certificate-authority-data: {authority}
contexts:
- name: ml-training-eu
  context:
    cluster: ml-training-eu
    user: ml-training-eu-admin
current-context: ml-training-eu
users:
- name: ml-training-eu-admin
  user:
    token: {token}
"""
PEM = """\
-----BEGIN OPENSSH PRIVATE KEY-----
b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW
QyNTUxOQAAACBsZi+Vb7b/9pJk0hY1Qm4oO6Wq+zX1vE2rT8yU9iO0pAAAAJgAAAAAAAAA
-----END OPENSSH PRIVATE KEY-----
"""

characters = st.characters(codec="utf-8", exclude_categories=("Cs", "Cn", "Co", "Cc"))
lines = st.text(st.sampled_from("\tabXY019+/=-_%&;<>'\"\\ ünr$日😀") | characters, min_size=PART)
shaped = st.one_of(
    lines,
    st.lists(lines, min_size=2, max_size=4).map("\n".join),
    st.builds(
        lambda token, key: f"users:\n  - token: {token}\n    key: |\n      {key}", lines, lines
    ),
)


def is_long_enough(text: str) -> bool:
    """Return True if parts of the text are searched for, however blanks are spelled."""
    return len(re.sub(r"[\W_]", "", text)) >= PART and Redactor([text]).has_secrets


secrets = shaped.filter(is_long_enough)
spelled = st.sampled_from(sorted(ENCODINGS)).map(ENCODINGS.__getitem__)


def strip_markers(text: str) -> str:
    """Return the text without redaction markers, quotes and braces."""
    return re.sub(r"[\W_]", "", html.unescape(unquote(text.replace(MASK, ""))))


class TestEverySpelling:
    @pytest.mark.parametrize("name", ENCODINGS)
    @pytest.mark.parametrize(
        "secret",
        [
            'with "quotes" and \\back\\slashes\\',
            "C:\\new\\table\\x41\\u0041",
            "line one is here\nline two, indented\n\tand three",
            "ñandú-пароль-密码密码密码-😀😀",
            "%41%25%2541&amp;&lt;&#65;+ +plus",
            "it's-a-k'ey",
            '"%41%42%43"',
            "sixteen-letters!",
        ],
    )
    def test_every_spelling_of_a_secret_is_redacted(self, name: str, secret: str) -> None:
        redacted = Redactor([secret]).redact(BEFORE + ENCODINGS[name](secret) + AFTER)
        assert redacted.startswith(BEFORE)
        assert redacted.endswith(AFTER)
        assert MASK in redacted
        assert len(strip_markers(redacted[len(BEFORE) : -len(AFTER)])) <= 8

    @pytest.mark.parametrize("name", RARE_ENCODINGS)
    def test_rare_spellings_are_redacted(self, name: str) -> None:
        secret = "correct horse (battery)\nstäple 4711-0815"
        redacted = Redactor([secret]).redact(BEFORE + RARE_ENCODINGS[name](secret) + AFTER)
        middle = re.sub(r"\x1b\[[0-9]*m", "", redacted[len(BEFORE) : -len(AFTER)])
        assert MASK in middle
        assert len(strip_markers(middle)) <= 8

    @given(secrets, spelled)
    @example("0" * 16, ENCODINGS["hex"])
    def test_no_part_of_any_secret_remains(self, secret: str, spelling: Any) -> None:
        redacted = Redactor([secret]).redact(BEFORE + spelling(secret) + AFTER)
        middle = redacted.removeprefix(BEFORE).removesuffix(AFTER)
        remaining = strip_markers(middle)
        for start in range(len(secret) - PART + 1):
            part = strip_markers(spelling(secret[start : start + PART]))
            assert len(part) < PART or part not in remaining

    @given(secrets, spelled, st.data())
    def test_a_part_of_a_secret_is_redacted(self, secret: str, spelling: Any, data: Any) -> None:
        start = data.draw(st.integers(0, len(secret) - PART))
        part = secret[start : data.draw(st.integers(start + PART, len(secret)))]
        if is_long_enough(part):
            redacted = Redactor([secret]).redact(f"{BEFORE}{spelling(part)}{AFTER}")
            assert MASK in redacted
            assert spelling(part) not in redacted

    @given(secrets, spelled, spelled)
    def test_nested_spellings_are_redacted(self, secret: str, inner: Any, outer: Any) -> None:
        assert Redactor([secret]).contains_secret(f"{BEFORE}{outer(inner(secret))}{AFTER}")

    @pytest.mark.parametrize("name", ENCODINGS)
    @pytest.mark.parametrize("secret", ["hunter2", "p'w\"1", "пл1д", "a\\nb"])
    def test_a_short_secret_is_redacted_only_completely(self, name: str, secret: str) -> None:
        if "base64" in name and name != "base64":
            return  # what else is in there hides where it begins
        redacted = Redactor([secret]).redact(f"{BEFORE}{ENCODINGS[name](secret)}{AFTER}")
        assert len(strip_markers(redacted)) <= len(strip_markers(BEFORE + AFTER)) + 1


class TestLooseSpellings:
    """Spellings with another case, reversed, or with separators between characters."""

    @pytest.mark.parametrize("name", LOOSE_ENCODINGS)
    @pytest.mark.parametrize(
        "secret",
        [
            "tgp_v1_9fQ2xLr7Zk0aBcDe",
            "S3cr3t-4711",
            "hunter2",
            "correct horse battery staple",
            "k8s-t0ken",
        ],
    )
    def test_every_spelling_of_a_secret_is_redacted(self, name: str, secret: str) -> None:
        redacted = Redactor([secret]).redact(BEFORE + LOOSE_ENCODINGS[name](secret) + AFTER)

        middle = redacted.removeprefix(BEFORE).removesuffix(AFTER)
        assert MASK in middle
        assert len(strip_markers(middle)) <= 3

    @pytest.mark.parametrize(
        ("secret", "text"),
        [
            ("cluster", "Cluster train is not ready"),
            ("Node", "the node of the NODE pool"),
            ("big-cluster", "a training cluster, as big as any cluster"),
            ("stressed", "these are desserts"),
            ("my-pool-pass", "my pool passes its checks"),
            ("201", "answered 2 0 1"),
            ("123456", "12 s, 34 GPUs, 56 nodes"),
            (
                "certificate-authority-data: c3VwZXJzZWNyZXQ",
                "the certificate authority data is old",
            ),
        ],
    )
    def test_ordinary_words_are_unchanged(self, secret: str, text: str) -> None:
        assert Redactor([secret]).redact(text) == text

    @pytest.mark.parametrize(
        "text",
        ["a " * 100_000, "aB" * 100_000, "-" * 200_000, "0f " * 70_000, "İß" * 50_000],
        ids=["spaced", "cased", "separators", "hex", "characters-that-grow"],
    )
    def test_a_long_text_is_searched_in_linear_time(self, text: str) -> None:
        redactor = Redactor(["tgp_v1_9fQ2xLr7Zk0aBcDe", "hunter2"])
        started = time.process_time()

        assert redactor.redact(text) == text

        assert time.process_time() - started < 20


class TestOrdinaryText:
    @given(
        st.lists(st.sampled_from(["node", "pool is not", "ready:", "cluster ml-1", "has", "8/16"])),
        secrets,
    )
    def test_other_text_is_unchanged(self, words: list[str], secret: str) -> None:
        message = " ".join(words)
        marked = "".join(chr(0x4E00 + ord(character) % 5000) for character in secret)
        assert Redactor([marked]).redact(message) == message

    def test_a_secret_of_three_characters_is_redacted_as_a_separate_word(self) -> None:
        redact = Redactor(["abc", "ab", ""]).redact
        assert redact("abcd xabc ab abc=1") == f"abcd xabc ab {MASK}=1"

    def test_names_and_addresses_of_a_kubeconfig_remain_and_credentials_do_not(self) -> None:
        authority = base64.b64encode(PEM.encode()).decode()
        kubeconfig = KUBECONFIG.format(authority=authority, token="t0p-5ecret-t0ken")
        redact = Redactor([kubeconfig]).redact
        for ordinary_text in (
            "cluster ml-training-eu is not ready: https://10.0.0.1:6443 does not answer",
            "the clusters: 3, users: 5, certificate-authority-data: missing",
            "current-context: none, kind: Config, apiVersion: v1",
        ):
            assert redact(ordinary_text) == ordinary_text
        for hidden in ("t0p-5ecret-t0ken", "ecret-t0", PEM.splitlines()[1][:12], authority):
            assert redact(f"it has <{hidden}>.") == f"it has <{MASK}>."
        encoded = base64.b64encode(kubeconfig.encode()).decode()
        assert Redactor([encoded]).redact("it is <t0p-5ecret-t0ken>") == f"it is <{MASK}>"

    @pytest.mark.parametrize(
        "users",
        [
            "users:\n- user: {token: t0p-5ecret-t0ken}",
            "users:\n- user:\n    token: t0p-5ecret-t0ken",
            "users:\n- user: |\n    t0p-5ecret-t0ken",
            "server: https://me:t0p-5ecret-t0ken@here",
        ],
    )
    def test_a_credential_that_looks_like_a_name_is_hidden(self, users: str) -> None:
        kubeconfig = f"apiVersion: v1\nclusters: []\n{users}\n"
        assert "t0ken" not in Redactor([kubeconfig]).redact("is t0p-5ecret-t0ken right")

    def test_the_frame_of_a_pem_key_remains(self) -> None:
        redacted = Redactor([PEM]).redact(f"no key: {PEM}")
        first, *_, last = PEM.splitlines()
        assert redacted == f"no key: {first}{MASK}{last}\n"

    def test_an_ordinary_word_of_a_key_remains(self) -> None:
        redact = Redactor(["emulator-admin-key", "my-password-4711"]).redact
        message = "the emulator wants a password of 12 characters"
        assert redact(message) == message
        assert "4711" not in redact("is it my-password-4711?")

    @pytest.mark.slow
    @pytest.mark.sampled(1)
    @given(secrets, spelled)
    def test_redacted_text_is_unchanged(self, secret: str, spelling: Any) -> None:
        redact = Redactor([secret, "secret", "sec"]).redact
        once = redact(BEFORE + spelling(secret) + AFTER)
        assert redact(once).count(MASK) >= once.count(MASK)
        assert f"[{MASK}]" not in redact(once)

    @given(st.lists(secrets, max_size=3), st.lists(lines, max_size=3), spelled)
    def test_secrets_within_texts_are_redacted(
        self, hidden: list[str], texts: list[str], spelling: Any
    ) -> None:
        texts += [f"it is {spelling(item)}" for item in hidden]
        all_of_them = Redactor(hidden)
        within = Redactor(hidden, within=texts)
        assert [*map(within.redact, texts)] == [*map(all_of_them.redact, texts)]

    def test_the_repr_of_a_redactor_has_no_secrets(self) -> None:
        assert "4711-0815" not in repr(Redactor(["4711-0815"]))


BODY = {
    "cluster_name": "train",
    "num_gpus": 8,
    "spot": False,
    "access": {"password": 'p"q\nr', "keys": ["k"]},
}


class TestQuotedRequests:
    @pytest.mark.parametrize("name", ENCODINGS)
    def test_a_quoted_request_is_redacted_in_every_spelling(self, name: str) -> None:
        quoted = ENCODINGS[name](json.dumps(BODY))
        redacted = redact_request(f"bad request {quoted}", BODY)
        assert redacted.startswith("bad request ")
        assert QUOTED in redacted
        assert len(strip_markers(redacted.replace(QUOTED, ""))) <= len("badrequest") + 4

    @pytest.mark.parametrize(
        ("quoted", "expected"),
        [
            (f"bad: {BODY!r} here", f"bad: {QUOTED} here"),
            ("bad: {'cluster_name': 'train', 'password'...", f"bad: {QUOTED}"),
            ("Cluster(cluster_name='train', num_gpus=8) here", f"Cluster{QUOTED} here"),
            ('at ...me": "train", "num_gpus": 8, "spot": fa...', 'at ...me": "train", '),
            ("cluster_name=train&num_gpus=8&password=p here", f"{QUOTED} here"),
            ("cluster_name: train\nnum_gpus: 8\npassword: p", None),
        ],
    )
    def test_a_quoted_request_is_redacted_in_other_forms(
        self, quoted: str, expected: str | None
    ) -> None:
        redacted = redact_request(quoted, BODY)
        assert QUOTED in redacted
        assert expected is None or redacted.startswith(expected)

    @pytest.mark.parametrize(
        "text",
        [
            "cluster_name must be unique",
            '{"cluster_name": ["must be unique"]}',
            "num_gpus=8 is too many (at most 4)",
            "spot is not possible for {region}",
            "",
        ],
    )
    def test_text_about_a_request_remains(self, text: str) -> None:
        assert redact_request(text, BODY) == text
        assert redact_request(text, {}) == text


@pytest.mark.parametrize(
    "text",
    ["%25" * 50_000, "\\" * 100_000, "A" * 100_000, "%26amp%3B" * 10_000, "&#37;26#37%3b" * 10_000],
    ids=["percents", "backslashes", "base64", "entities", "mixed"],
)
def test_nested_escapes_end(text: str) -> None:
    assert Redactor(["not in there at all"]).redact(text) == text


def test_a_cached_text_is_clean_only_for_its_redactor() -> None:
    message = "the key is topsecret-1"
    assert not Redactor(["another-key"]).contains_secret(message)
    redactor = Redactor(["topsecret-1"])
    assert [redactor.contains_secret(message) for _ in range(2)] == [True, True]
    assert [redactor.contains_secret("the key") for _ in range(2)] == [False, False]
    assert redactor.redact(message) == "the key is [secret]"
