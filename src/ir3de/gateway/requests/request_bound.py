"""The most tokens that a request can take: as much of its key's limits is reserved before an expert is asked.

Servers differ in the fields that limit an answer, and in how strictly they read a number, so the largest reading
counts. No tokenizer makes more tokens of a text than it has bytes, so those of the request's JSON bound its prompt; but
not with images in it, of which a model reads far less.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ir3de.gateway.config.experts import ExpertConfig
from ir3de.gateway.wire.format import WireFormat
from ir3de.gateway.wire.passthrough import PassthroughFormat

DEFAULT_OUTPUT_TOKENS = 8_192  # of an answer that neither the request nor the expert's configuration limits
ATTACHMENT_TOKENS = 2_000  # of an image, a recording or a file in a chat
UNSEEN_TOKENS = 8_192  # of what an expert reads and the gateway does not: an upload, a stored conversation
FORM_IMAGES = 10  # as many as OpenAI's API makes of one form
MAX_TOKENS = 10**12  # a client may send a number with thousands of digits

# under all names that servers have for it; a server that does not know a name ignores it
_ANSWER_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "n_predict")
_WRITING = frozenset(("images", "audio_speech", "audio_transcriptions", "audio_translations"))  # endpoints with output
_ATTACHMENTS = frozenset((
    "image_url", "input_image", "image", "input_audio", "audio_url", "video_url", "file", "input_file", "document",
))  # fmt: skip
_BYTES_PER_ESTIMATED_TOKEN = 5  # at most: see token_estimate.py
_PART_TOKENS = 16  # that a chat's template may put around a message or a part of one


class RequestBound(NamedTuple):
    """The most tokens of a prompt, and of all its answers together."""

    prompt: int
    answer: int


def bound_prompt(values: Mapping[str, Any], content_bytes: int, text_tokens: int) -> int:
    """The most tokens of a prompt whose JSON has so many bytes, and its texts an estimate of so many tokens."""
    attachments = parts = 0
    left: list[Any] = [values.get(name) for name in ("messages", "input")]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            kind = value.get("type")
            attachments += isinstance(kind, str) and kind in _ATTACHMENTS
            left += value.values()
        elif isinstance(value, list):
            left += value
        parts += 1
    if not attachments:
        return content_bytes
    texts = _BYTES_PER_ESTIMATED_TOKEN * text_tokens + _PART_TOKENS * parts
    return min(content_bytes, texts + ATTACHMENT_TOKENS * attachments)


def find_bound(
    wire: WireFormat, values: Mapping[str, Any], config: ExpertConfig, *, prompt_tokens: int, is_continued: bool = False
) -> RequestBound:
    """What a request can take if this expert answers it.

    >>> from ir3de.gateway.wire import FORMATS
    >>> expert = ExpertConfig(name="law", base_url="http://127.0.0.1:8001/v1")
    >>> asked = {"max_completion_tokens": 5, "max_tokens": "50", "n": 100}
    >>> find_bound(FORMATS["chat/completions"], asked, expert, prompt_tokens=90)
    RequestBound(prompt=90, answer=5000)
    """
    window = config.context_window or MAX_TOKENS
    prompt = prompt_tokens + len((config.system_prompt or "").encode())
    if is_continued:
        prompt += config.context_window or UNSEEN_TOKENS
    answer = 0
    if wire.is_sampled:
        sent = {**config.defaults, **values}
        limit = find_answer_limit(wire, sent, find_longest_answer(config))
        answer = count_answers(sent) * min(limit, config.max_output_tokens or window)
    return RequestBound(min(prompt, window), min(answer, MAX_TOKENS))


def find_passed_bound(
    wire: PassthroughFormat, values: Mapping[str, Any], prompt_bytes: int | None, config: ExpertConfig
) -> RequestBound:
    """What a request that is passed through can take; a form is not read, so it has no `prompt_bytes`."""
    window, prompt = config.context_window or MAX_TOKENS, UNSEEN_TOKENS if prompt_bytes is None else prompt_bytes
    answers = 0
    if wire.capability in _WRITING:
        answers = FORM_IMAGES if prompt_bytes is None and wire.capability == "images" else count_answers(values)
    return RequestBound(min(prompt, window), min(answers * find_longest_answer(config), MAX_TOKENS))


def find_longest_answer(config: ExpertConfig) -> int:
    """The longest answer that an expert gives where the request does not limit it."""
    return config.max_output_tokens or config.context_window or DEFAULT_OUTPUT_TOKENS


def find_answer_limit(wire: WireFormat, values: Mapping[str, Any], longest: int) -> int:
    """The most tokens of one answer; `longest`, where a server may take the request for one without a limit."""
    own = [_read_number(values[name]) for name in wire.answer_limits if values.get(name) is not None]
    is_limited = bool(own) and all(own)  # 0 and -1 mean no limit in some servers
    return max(0 if is_limited else longest, read_answer_limit(values))


def read_answer_limit(values: Mapping[str, Any]) -> int:
    """The largest number that limits an answer, whatever the API; 0 if there is none."""
    return max(_read_number(values.get(name)) for name in _ANSWER_LIMITS)


def count_answers(values: Mapping[str, Any]) -> int:
    """How many answers are written: several of each prompt, and of several prompts."""
    prompts = values.get("prompt")
    several = len(prompts) if isinstance(prompts, list) and any(isinstance(one, (str, list)) for one in prompts) else 1
    return max(1, _read_number(values.get("n")), _read_number(values.get("best_of"))) * several


def _read_number(value: object) -> int:
    """A number as the most lenient server reads it; 0 if it is not a number, or below 1."""
    try:
        number = float(value) if isinstance(value, str) else value
    except ValueError:
        return 0
    if not isinstance(number, (int, float)) or not number >= 1:
        return 0
    return int(min(number, MAX_TOKENS))
