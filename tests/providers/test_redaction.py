"""A secret is found in whatever spelling it comes back, and ordinary text stays as it is."""

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
from spellings import LOOSE_SPELLINGS, RARE_SPELLINGS, SPELLINGS

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
    """Whether the text has so much that a part of it is looked for, however blanks are spelled.

    A word that every key file has (`kubeconfig`) is not looked for.
    """
    return len(re.sub(r"[\W_]", "", text)) >= PART and Redactor([text]).has_secrets


secrets = shaped.filter(is_long_enough)
spelled = st.sampled_from(sorted(SPELLINGS)).map(SPELLINGS.__getitem__)


def letters(text: str) -> str:
    """What is left of a text beside the marks, the quotes and the braces around it."""
    return re.sub(r"[\W_]", "", html.unescape(unquote(text.replace(MASK, ""))))


class TestEverySpelling:
    @pytest.mark.parametrize("name", SPELLINGS)
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
    def test_of_a_secret_nothing_is_left(self, name: str, secret: str) -> None:
        shown = Redactor([secret]).redact(BEFORE + SPELLINGS[name](secret) + AFTER)
        assert shown.startswith(BEFORE)
        assert shown.endswith(AFTER)
        assert MASK in shown
        assert len(letters(shown[len(BEFORE) : -len(AFTER)])) <= 8

    @pytest.mark.parametrize("name", RARE_SPELLINGS)
    def test_a_rare_one(self, name: str) -> None:
        secret = "correct horse (battery)\nstäple 4711-0815"
        shown = Redactor([secret]).redact(BEFORE + RARE_SPELLINGS[name](secret) + AFTER)
        middle = re.sub(r"\x1b\[[0-9]*m", "", shown[len(BEFORE) : -len(AFTER)])
        assert MASK in middle
        assert len(letters(middle)) <= 8

    @given(secrets, spelled)
    @example("0" * 16, SPELLINGS["hex"])
    def test_of_any_secret_no_part_is_left(self, secret: str, spelling: Any) -> None:
        shown = Redactor([secret]).redact(BEFORE + spelling(secret) + AFTER)
        middle = shown.removeprefix(BEFORE).removesuffix(AFTER)
        left = letters(middle)
        for start in range(len(secret) - PART + 1):
            part = letters(spelling(secret[start : start + PART]))
            assert len(part) < PART or part not in left

    @given(secrets, spelled, st.data())
    def test_of_a_part_nothing_is_left(self, secret: str, spelling: Any, data: Any) -> None:
        start = data.draw(st.integers(0, len(secret) - PART))
        part = secret[start : data.draw(st.integers(start + PART, len(secret)))]
        if is_long_enough(part):
            shown = Redactor([secret]).redact(f"{BEFORE}{spelling(part)}{AFTER}")
            assert MASK in shown
            assert spelling(part) not in shown

    @given(secrets, spelled, spelled)
    def test_one_spelling_in_another(self, secret: str, inner: Any, outer: Any) -> None:
        assert Redactor([secret]).contains_secret(f"{BEFORE}{outer(inner(secret))}{AFTER}")

    @pytest.mark.parametrize("name", SPELLINGS)
    @pytest.mark.parametrize("secret", ["hunter2", "p'w\"1", "пл1д", "a\\nb"])
    def test_a_short_secret_is_found_as_a_whole(self, name: str, secret: str) -> None:
        if "base64" in name and name != "base64":
            return  # what else is in there hides where it begins
        shown = Redactor([secret]).redact(f"{BEFORE}{SPELLINGS[name](secret)}{AFTER}")
        assert len(letters(shown)) <= len(letters(BEFORE + AFTER)) + 1


class TestALooseSpelling:
    """Another case, the other direction, and separators between the characters."""

    @pytest.mark.parametrize("name", LOOSE_SPELLINGS)
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
    def test_of_a_secret_nothing_is_left(self, name: str, secret: str) -> None:
        shown = Redactor([secret]).redact(BEFORE + LOOSE_SPELLINGS[name](secret) + AFTER)

        middle = shown.removeprefix(BEFORE).removesuffix(AFTER)
        assert MASK in middle
        assert len(letters(middle)) <= 3

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
    def test_ordinary_words_stay(self, secret: str, text: str) -> None:
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


class TestWhatIsNotSecret:
    @given(
        st.lists(st.sampled_from(["node", "pool is not", "ready:", "cluster ml-1", "has", "8/16"])),
        secrets,
    )
    def test_other_text_stays(self, words: list[str], secret: str) -> None:
        text = " ".join(words)
        marked = "".join(chr(0x4E00 + ord(each) % 5000) for each in secret)
        assert Redactor([marked]).redact(text) == text

    def test_a_secret_of_three_characters_is_found_where_it_stands_alone(self) -> None:
        redact = Redactor(["abc", "ab", ""]).redact
        assert redact("abcd xabc ab abc=1") == f"abcd xabc ab {MASK}=1"

    def test_of_a_kubeconfig_who_and_where_are_told_and_with_what_is_not(self) -> None:
        authority = base64.b64encode(PEM.encode()).decode()
        kubeconfig = KUBECONFIG.format(authority=authority, token="t0p-5ecret-t0ken")
        redact = Redactor([kubeconfig]).redact
        for told in (
            "cluster ml-training-eu is not ready: https://10.0.0.1:6443 does not answer",
            "the clusters: 3, users: 5, certificate-authority-data: missing",
            "current-context: none, kind: Config, apiVersion: v1",
        ):
            assert redact(told) == told
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

    def test_the_frame_of_a_key_is_told(self) -> None:
        shown = Redactor([PEM]).redact(f"no key: {PEM}")
        first, *_, last = PEM.splitlines()
        assert shown == f"no key: {first}{MASK}{last}\n"

    def test_an_ordinary_word_of_a_key_is_told(self) -> None:
        redact = Redactor(["emulator-admin-key", "my-password-4711"]).redact
        text = "the emulator wants a password of 12 characters"
        assert redact(text) == text
        assert "4711" not in redact("is it my-password-4711?")

    @pytest.mark.slow
    @pytest.mark.sampled(1)
    @given(secrets, spelled)
    def test_what_was_redacted_stays(self, secret: str, spelling: Any) -> None:
        redact = Redactor([secret, "secret", "sec"]).redact
        once = redact(BEFORE + spelling(secret) + AFTER)
        assert redact(once).count(MASK) >= once.count(MASK)
        assert f"[{MASK}]" not in redact(once)

    @given(st.lists(secrets, max_size=3), st.lists(lines, max_size=3), spelled)
    def test_within_texts_it_finds_the_same(
        self, hidden: list[str], texts: list[str], spelling: Any
    ) -> None:
        texts += [f"it is {spelling(each)}" for each in hidden]
        all_of_them = Redactor(hidden)
        within = Redactor(hidden, within=texts)
        assert [*map(within.redact, texts)] == [*map(all_of_them.redact, texts)]

    def test_its_secrets_are_not_in_its_repr(self) -> None:
        assert "4711-0815" not in repr(Redactor(["4711-0815"]))


BODY = {
    "cluster_name": "train",
    "num_gpus": 8,
    "spot": False,
    "access": {"password": 'p"q\nr', "keys": ["k"]},
}


class TestAQuotedRequest:
    @pytest.mark.parametrize("name", SPELLINGS)
    def test_is_left_out_in_every_spelling(self, name: str) -> None:
        quoted = SPELLINGS[name](json.dumps(BODY))
        shown = redact_request(f"bad request {quoted}", BODY)
        assert shown.startswith("bad request ")
        assert QUOTED in shown
        assert len(letters(shown.replace(QUOTED, ""))) <= len("badrequest") + 4

    @pytest.mark.parametrize(
        ("quoted", "shown"),
        [
            (f"bad: {BODY!r} here", f"bad: {QUOTED} here"),
            ("bad: {'cluster_name': 'train', 'password'...", f"bad: {QUOTED}"),
            ("Cluster(cluster_name='train', num_gpus=8) here", f"Cluster{QUOTED} here"),
            ('at ...me": "train", "num_gpus": 8, "spot": fa...', 'at ...me": "train", '),
            ("cluster_name=train&num_gpus=8&password=p here", f"{QUOTED} here"),
            ("cluster_name: train\nnum_gpus: 8\npassword: p", None),
        ],
    )
    def test_in_other_forms(self, quoted: str, shown: str | None) -> None:
        found = redact_request(quoted, BODY)
        assert QUOTED in found
        assert shown is None or found.startswith(shown)

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
    def test_what_is_said_about_it_stays(self, text: str) -> None:
        assert redact_request(text, BODY) == text
        assert redact_request(text, {}) == text


@pytest.mark.parametrize(
    "text",
    ["%25" * 50_000, "\\" * 100_000, "A" * 100_000, "%26amp%3B" * 10_000, "&#37;26#37%3b" * 10_000],
    ids=["percents", "backslashes", "base64", "entities", "mixed"],
)
def test_escapes_of_escapes_come_to_an_end(text: str) -> None:
    assert Redactor(["not in there at all"]).redact(text) == text


def test_a_text_that_is_remembered_is_clean_for_its_redactor_alone() -> None:
    text = "the key is topsecret-1"
    assert not Redactor(["another-key"]).contains_secret(text)
    redactor = Redactor(["topsecret-1"])
    assert [redactor.contains_secret(text) for _ in range(2)] == [True, True]
    assert [redactor.contains_secret("the key") for _ in range(2)] == [False, False]
    assert redactor.redact(text) == "the key is [secret]"
