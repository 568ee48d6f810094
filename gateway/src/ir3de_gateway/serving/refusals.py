"""Answers to what never becomes a request, as OpenAI's API has them."""

from __future__ import annotations

from email.utils import formatdate
from http import HTTPStatus

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.serving.plain_requests import MAX_HEAD_BYTES, MAX_HEADERS


def join_head(request_line: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    return b"%b%b\r\n" % (request_line, b"".join([b"%b: %b\r\n" % pair for pair in headers]))


def build_answer(problem: ApiError) -> bytes:
    body = problem.body()
    status = HTTPStatus(problem.status)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
        (b"date", formatdate(usegmt=True).encode()),
        *problem.header_list(),
    ]
    return join_head(f"HTTP/1.1 {status} {status.phrase}\r\n".encode(), headers) + body


def build_invalid_request() -> ApiError:
    return ApiError(400, "this is not an HTTP/1.1 request", code="invalid_http")


def build_head_too_large() -> ApiError:
    message = f"request line and headers may have {MAX_HEAD_BYTES:,} bytes together, in {MAX_HEADERS} headers"
    return ApiError(431, f"{message}: send fewer or shorter ones")
