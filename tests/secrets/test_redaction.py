"""Secrets are recognized by their place, whatever they look like and whatever their names are."""

import logging
import pickle
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import wdspec
from wdspec.base.errors import ShardError
from wdspec.base.redaction import harmless, mask, printable, redact, redact_answer, redacted_urls
from wdspec.cli.samples import describe_value

LETTERS = "abcXYZ019"
_names = st.text("abcdefgh_-.", min_size=1, max_size=12).filter(lambda name: len(name) > 3).map("k".__add__)


def secrets(marks):
    """Texts that appear nowhere by chance."""
    return st.text(LETTERS + marks, min_size=1, max_size=20).map(lambda text: f"Qz7{text}Zq3")


IN_URLS = [
    "https://user:{}@host/a.tar",
    "https://{}@host:443/a.tar",
    "http://user%3A{}@host/a.tar",
    "sftp://user:{}@host/a.tar",
    "s3://key:{}@bucket/a.tar",
    "https://host/a.tar?{name}={}",
    "https://host/a.tar?versionId=7&{name}={}&size=3",
    "https://host/a.tar?{}",
    "https://host/a.tar?{name}%3D{}",
    "https://host/a.tar%3F{name}%3D{}",
    "https://host/a-{{000..009}}.tar?{name}={}",
    "https://host/a.tar#{name}={}",
    "s3://bucket/a.tar?{name}={}",
    "az://box/a.tar?sv=2024&{name}={}",
]
IN_COMMANDS = [
    "pipe:curl -u user:{} https://host/a.tar",
    "pipe:curl -u{} https://host/a.tar",
    "pipe:curl --user='user:{}' -sf https://host/a.tar",
    "pipe:curl -H 'X-Anything: {}' https://host/a.tar",
    'pipe:curl -H "Authorization: Bearer {}" https://host/a.tar | cat',
    "pipe:NAME={} program a.tar",
    "pipe:env A=1 NAME='{}' program a.tar",
    "pipe:sshpass -p {} ssh host cat a.tar",
    "pipe:mysql -p{} -e x",
    "pipe:rclone cat :s3,{name}={}:bucket/a.tar",
    "pipe:bash -c 'set -o pipefail; curl -u user:{} https://host/a.tar | gzip'",
    "pipe:git archive --remote=user:{}@host:repo",
    "pipe:scp user:{}@host:a.tar -",
]
PROSE = [
    "{}",
    "no such shard `{}`; correct it [source a, url {}]",
    "Max retries exceeded with url: {} (Caused by X)",
    'File "a.py", line 3, in "{}", and more',
]


def hidden(text, secret):
    for shown in (redact(text), redacted_urls(text), printable(text), str(ShardError(text, url=text))):
        assert secret not in shown, shown
    assert redact(redact(text)) == redact(text)
    assert len(mask(text)) == len(text)
    assert secret not in mask(text)


@pytest.mark.parametrize("form", IN_URLS)
@settings(max_examples=25)
@given(prose=st.sampled_from(PROSE), secret=secrets("'!$*+~.-_%,:"), name=_names)
@example(prose="{}", secret="it's", name="subscription-key")
@example(prose="{}", secret="Qz7", name="access_key")
@example(prose="{}", secret="Qz7", name="jwt")
@example(prose="{}", secret="Qz7", name="code")
def test_credentials_in_urls_are_hidden(form, prose, secret, name):
    url = form.format(secret, name=name)
    hidden(prose.format(url, url), secret)


@pytest.mark.parametrize("form", [form for form in IN_URLS if "{}@" in form])
@settings(max_examples=25)
@given(secret=secrets("/?#&"))
def test_an_unescaped_password_is_hidden(form, secret):
    if ":{}@" in form:
        hidden(form.format(secret), secret)


@pytest.mark.parametrize("form", IN_COMMANDS)
@settings(max_examples=25)
@given(prose=st.sampled_from(PROSE), secret=secrets("!+~.-_%"), name=_names)
def test_values_of_command_options_and_variables_are_hidden(form, prose, secret, name):
    url = form.format(secret, name=name)
    hidden(prose.format(url, url), secret)


WHOLE = [
    "make: {token_ids: {tokenize: text}, token_type_ids: {tokenize: text}}", "image_token: <img>, mask_token: MASK",
    "tokenise: text", "{eos_token: </s>, pad_token: PADDING}",
    "https://host:80/a-{000..009}.tar?versionId=7&size=3",
    "s3://bucket/a-?.tar", "gs://bucket/a@b/c.tar", "ais://@cluster#name/bucket/a.tar", "az://box@account.dfs/a.tar",
    "http://h/v1/objects/b/a.tar?provider=aws&namespace=%40remote%23ns",
    "http://[::1]:80/a@b.tar", "hf://datasets/user/repo@v1/a.tar", "sftp://user@host/a.tar",
    "pipe:cat /data/a-000.tar | gzip -dc", "pipe:aws s3 cp s3://bucket/a.tar -", "pipe:ssh host cat /data/a.tar",
    "pipe:bash -c 'set -o pipefail; cat a.tar | tail -n 3'", "pipe:curl -fsSL https://host/a.tar",
    "https://host/box?list-type=2&X-Amz-Expires=900&max-keys=7",
    "AIS_READ_TIMEOUT=20, epoch 5, key 000123", "is it `http:`? `pipe:` runs a program", "set FSSPEC_GCS_TOKEN=anon",
    "`collate: {tokens: pad}`", "`map: tokenizers:Tokenizer.from_file`",
    "NoCredentialsError: Unable to locate credentials", "InvalidTokenException: The token expired",
    "`token_file: ~/.config/ais/cli/auth.token`", "the regex `(?i)gs://(.*)` of `rewrite`",
]  # fmt: skip


@pytest.mark.parametrize("text", WHOLE)
def test_values_that_are_not_credentials_are_shown(text):
    assert redact(text) == text


@pytest.mark.parametrize("form", ["{}", "token={}; and", '{{"message": "you sent {}"}}', "Authorization: {}"])
@settings(max_examples=25)
@given(secret=secrets("+=&!"))
def test_secrets_echoed_by_a_server_are_hidden_in_any_encoding(form, secret):
    for sent in (
        f"https://user:{quote(secret, safe='')}@host/x",
        f"https://host/x?a={quote(secret, safe='')}",
        secret,
    ):
        for repeated in (secret, quote(secret, safe="")):
            shown = redact_answer(form.format(repeated), sent)
            assert secret not in shown
            assert quote(secret, safe="") not in shown


def test_loggers_hide_secrets(caplog):
    log = logging.getLogger("wdspec")
    with caplog.at_level("INFO"):
        try:
            raise ValueError("https://host/?sig=Qz7")
        except ValueError:
            log.exception("at %s", "https://user:Qz7@host/")
    assert "https://***@host/" in caplog.text
    assert "Qz7" not in caplog.text


def test_a_cause_is_shown_without_its_secrets():
    def chain():
        try:
            try:
                raise OSError("http://host/?sig=Qz7")
            except OSError as error:
                raise KeyError("inner") from error
        except KeyError as error:
            return error

    first = chain()
    same = harmless(first)
    assert type(same).__name__ == "KeyError"
    assert type(same.__cause__).__name__ == "OSError"
    assert str(same.__cause__) == "http://host/?sig=***"
    plain = ValueError("nothing")
    assert harmless(plain) is plain


@pytest.mark.parametrize("form", [form for form in IN_URLS if "{name}" not in form])
def test_a_source_is_not_named_after_a_secret(form):
    url = form.format("Qz7/Zq3")
    spec = wdspec.load({"dataset": [{"shards": url}], "epoch": 1})
    assert "Zq3" not in spec.dataset[0].name


@pytest.mark.parametrize("value", ["{}", ["{}"], {"url": "{}"}], ids=["text", "list", "map"])
@pytest.mark.parametrize(
    "url", ["http://user:Qz7%s@host/" % ("x" * 300), 'pipe:curl -H "X-Api: Qz7" http://host/']
)
def test_a_value_is_redacted_before_it_is_cut_or_written_as_json(value, url):
    filled = url if value == "{}" else [url] if isinstance(value, list) else {"url": url}
    assert "Qz7" not in describe_value(filled).preview


def test_secrets_expanded_by_a_shell_are_hidden_in_program_output():
    assert "Qz7Zq3" not in redact_answer(
        "> X-Key: Qz7Zq3", 'pipe:curl -H "$(echo X-Key: Qz7Zq3)" http://host/'
    )


@pytest.mark.parametrize("namespace", ["remote", "%40remote", "%40remote%23own", "%23own"])
def test_an_aistore_namespace_is_not_a_secret(namespace):
    url = f"http://h/v1/objects/b/a.tar?provider=ais&namespace={namespace}"
    assert redact(url) == url


@pytest.mark.parametrize("kind", [ShardError, wdspec.FieldError, wdspec.SpecError, wdspec.UrlError])
@pytest.mark.parametrize("url", [form.format("Qz7Zq3", name="kkkk") for form in (*IN_URLS, *IN_COMMANDS)])
def test_a_pickled_error_contains_no_secret(kind, url):
    # It leaves the process: to a log collector, a scheduler, another machine.
    error = kind(f"cannot read {url}", url=url, location=url, list=url, key="a?b=c", code="D102")
    pickled = pickle.dumps(error)
    assert b"Qz7Zq3" not in pickled
    copy = pickle.loads(pickled)
    assert (str(copy), copy.place["key"], copy.code) == (str(error), "a?b=c", "D102")
    assert error.place["url"] == url
