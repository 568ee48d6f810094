"""TLS with experts: what the gateway trusts, and the certificate that it shows."""

from __future__ import annotations

import ssl
from importlib.util import find_spec
from pathlib import Path

from ir3de_gateway.config.experts import TlsFiles
from ir3de_gateway.config.findings import Finding, join_path
from ir3de_gateway.config.models import Config
from ir3de_gateway.config.yaml_parser import Document, FieldPath


class TlsFileError(OSError):
    """A file of certificates or keys that cannot be used; `field` is the field that names it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def build_tls_context(tls: TlsFiles | None, *, http2: bool = False) -> ssl.SSLContext:
    """What to trust and what to show; raises `TlsFileError` if a file cannot be used."""
    if tls is None:
        context = ssl.create_default_context()
    else:
        for field in ("ca", "certificate", "key"):
            _check_file(field, getattr(tls, field))
        context = _load_authorities(tls.ca)
        if tls.certificate is not None:
            _load_certificate(context, tls.certificate, tls.key)
    if http2:
        context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def find_problems(config: Config, document: Document) -> list[Finding]:
    """Files of experts that cannot be used, and packages that they need and that are missing."""
    problems: list[tuple[FieldPath, str]] = []
    for index, expert in enumerate(config.experts):
        if expert.http2 and find_spec("h2") is None:
            problems.append((("experts", index, "http2"), "HTTP/2 needs another package: pip install h2"))
        try:
            if expert.tls is not None:
                build_tls_context(expert.tls)
        except TlsFileError as error:
            problems.append((("experts", index, "tls", error.field), str(error)))
    return [Finding("error", join_path(path), message, document.line(path)) for path, message in problems]


def _check_file(field: str, path: str | None) -> None:
    if path is None:
        return
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise TlsFileError(field, f"the file {path} cannot be read: {error.strerror}") from error


def _load_authorities(path: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=path)
    except ssl.SSLError as error:
        message = f"the file {path} holds no certificates in PEM (-----BEGIN CERTIFICATE-----): {error.reason or error}"
        raise TlsFileError("ca", message) from error


def _load_certificate(context: ssl.SSLContext, certificate: str, key: str | None) -> None:
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")  # without this, it would ask on the terminal
    except ssl.SSLError as error:
        if key is None:
            message = (
                f"the file {certificate} does not hold a certificate and its key in PEM: name the key's file in key"
            )
        else:
            message = f"{certificate} and its key {key} do not fit, or are not in PEM, or the key has a password"
        raise TlsFileError("certificate", f"{message} ({error.reason or error})") from error
