"""URLs of prepared folders: which are read, and that no secret is in what is printed."""

import pytest

from unmask.shards.remote.access import RemoteAccess, RemoteOptions, parse_size
from unmask.shards.remote.location import (
    SCHEMES,
    Secrets,
    is_remote,
    parse_location,
    separate_secrets,
)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_url_of_each_scheme_is_a_folder(scheme: str) -> None:
    location = parse_location(f"{scheme}://place/of/tokens/")
    assert location.url == f"{scheme}://place/of/tokens"
    assert location.join("shards.json") == f"{scheme}://place/of/tokens/shards.json"
    assert location.request_url("a") == location.join("a")


def test_secrets_are_apart_from_the_url() -> None:
    source = "HTTPS://me:p%40ss@host:8443/tokens/?sig=a%2Fb&se=2"
    location = parse_location(source)
    assert location.url == "https://host:8443/tokens"
    assert location.secrets == Secrets(user="me", password="p@ss", query="sig=a%2Fb&se=2")
    assert location.request_url("x") == "https://host:8443/tokens/x?sig=a%2Fb&se=2"
    for shown in (repr(location), repr(location.secrets), str(location)):
        assert "p@ss" not in shown
        assert "sig" not in shown
    clean, secrets = separate_secrets(["text.txt", source])
    assert clean == ("text.txt", "https://host:8443/tokens")
    assert secrets == {clean[1]: location.secrets}
    access = RemoteOptions().access(secrets)
    assert "p@ss" not in repr(access)
    assert access.location(clean[1]).secrets == location.secrets


def test_messages_of_libraries_are_scrubbed() -> None:
    secrets = parse_location("https://me:word@host/t?sig=abc").secrets
    scrubbed = secrets.scrub("403,\n url='https://me:word@host/t/x?sig=abc' of me with word")
    assert scrubbed == "403, url='https://host/t/x' of *** with ***"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("ftp://host/a", r"^ftp://host/a: the scheme of a URL must be one of s3, gs, "),
        ("file:///etc/a", r"^file:///etc/a: the scheme"),
        ("s3://", "^s3://: names no folder"),
        ("s3://key:hush@bucket/a", "^s3://bucket/a: only http and https have a user"),
        ("gs://bucket/a?sig=hush", "^gs://bucket/a: only http and https have a user"),
    ],
)
def test_other_urls_are_refused_in_one_line_without_secrets(source: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        parse_location(source)
    assert "\n" not in str(error.value)
    assert "hush" not in str(error.value)


def test_paths_are_no_urls(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s3:" / "a").mkdir(parents=True)
    for source in ("corpus/", "hf:owner/name", "de=corpus/*.txt", "s3:/a", "s3://a", "C:\\text"):
        assert not is_remote(source)
    assert is_remote("s3://b")
    assert is_remote("ftp://b")


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("8GB", 8 * 10**9), ("1.5 GiB", 3 * 2**29), ("500mb", 5 * 10**8), ("20000000", 2 * 10**7)],
)
def test_sizes_have_units(text: str, n_bytes: int) -> None:
    assert parse_size(text) == n_bytes


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "8 XB", "nan", "8GBs", "i"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="data_cache_size must be a size such as 500MB"):
        parse_size(text)


def test_options_are_within_limits() -> None:
    with pytest.raises(ValueError, match="data_cache_size must be at least 16MB, got 1,000 B"):
        RemoteOptions(data_cache_size="1kB").access()
    with pytest.raises(ValueError, match="data_retries must be from 0 to 16, got 17"):
        RemoteOptions(data_retries=17).access()
    assert RemoteAccess(retries=9).waits == (0.5, 1, 2, 4, 8, 16, 32, 60, 60)
