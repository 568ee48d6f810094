"""An expert's files for TLS: what is wrong with them is told at the start, with the name of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from ir3de_gateway.config.document import Config
from ir3de_gateway.config.load import ConfigError, parse_config, parse_document
from ir3de_gateway.experts.expert import create_expert
from ir3de_gateway.transport import Destination
from transport_servers import TLS

EXPERT = "router: {path: router}\nexperts:\n  - name: law\n    base_url: BASE\n"


def parse(folder: Path, more: str, base_url: str = "https://law.example/v1") -> Config:
    text = EXPERT.replace("BASE", base_url) + "".join(f"    {line}\n" for line in more.splitlines())
    return parse_config(parse_document(text, "f.yaml"), folder / "f.yaml")


def test_paths_start_at_the_folder_of_the_configuration() -> None:
    config = parse(TLS, "tls: {ca: localhost.pem, certificate: localhost.pem, key: localhost.key}\nkeep_alive: 60")
    tls = config.experts[0].tls
    assert tls is not None
    assert (tls.ca, tls.key) == (str(TLS / "localhost.pem"), str(TLS / "localhost.key"))
    there = create_expert(config.experts[0]).destination
    assert there == Destination("https://law.example/v1", keep_alive=60, tls=tls)


@pytest.mark.parametrize(
    ("tls", "told"),
    [
        (
            "{ca: gone.pem}",
            "line 5, experts.0.tls.ca: the file {tls}/gone.pem cannot be read: No such file",
        ),
        ("{ca: localhost.key}", "experts.0.tls.ca: the file {tls}/localhost.key holds no certificates in PEM"),
        ("{certificate: gone.pem}", "experts.0.tls.certificate: the file {tls}/gone.pem cannot be read"),
        (
            "{certificate: localhost.pem}",
            "the file {tls}/localhost.pem does not hold a certificate and its key",
        ),
        (
            "{certificate: localhost.pem, key: localhost.pem}",
            "{tls}/localhost.pem and its key {tls}/localhost.pem do not match",
        ),
        ("{key: localhost.key}", "experts.0.tls: a key needs its certificate: name that file in certificate"),
    ],
)
def test_files_that_cannot_be_used_are_named(tls: str, told: str) -> None:
    with pytest.raises(ConfigError) as found:
        parse(TLS, f"tls: {tls}")
    assert told.format(tls=TLS) in str(found.value)


@pytest.mark.parametrize("more", ["tls: {}", "http2: true"])
def test_plain_http_has_neither_tls_nor_http2(tmp_path: Path, more: str) -> None:
    with pytest.raises(ConfigError, match="needs an address that begins with https://"):
        parse(tmp_path, more, "http://law.example/v1")
