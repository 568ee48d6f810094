"""Tokens of a request without a tokenizer: a rough estimate, and the most that it can take.

Experts have tokenizers of their own, so no exact number is right for all of them. The estimate leans upwards: English
is taken for a tenth longer than it is. It is compared with context windows.

The bound is reserved from the limits of the request's key before it is forwarded. Servers differ in the fields that
limit an answer, and in how strictly they read a number, so the largest reading counts. No tokenizer makes more tokens
of a text than it has bytes, so those of the request's JSON bound its prompt; but not with images in it, of which a
model reads far less, nor with files that the server fetches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_letters
from typing import Any, NamedTuple

from ir3de_gateway.config.experts import ExpertConfig
from ir3de_gateway.wire.formats import PassthroughFormat, WireFormat

LETTERS_PER_TOKEN = 4.5  # of English, spaces included
CHARS_PER_TOKEN = 2  # of other alphabets: Cyrillic, Arabic, Devanagari, letters with accents

# In UTF-8 one byte of each character shows its kind. Digits, signs, Chinese, Japanese, Korean and emoji count as a
# token each: many vocabularies split numbers digit by digit.
_LETTERS = f"{ascii_letters} ".encode()
_CONTINUING = bytes(range(0x80, 0xC0))
_OTHER_ALPHABETS = bytes(range(0xC0, 0xE3))  # up to U+2FFF

DEFAULT_OUTPUT_TOKENS = 8_192  # of an answer that neither the request nor the expert's configuration limits
IMAGE_TOKENS = 2_000  # of an image in a chat
UNSEEN_TOKENS = 8_192  # of what an expert reads and the gateway does not: an upload, a URL, a stored conversation
FORM_IMAGES = 10  # as many as OpenAI's API makes of one form
MAX_TOKENS = 10**12  # a client may send a number with thousands of digits

# under all names that servers have for it; a server that does not know a name ignores it
_ANSWER_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "n_predict")
_WRITING = frozenset(("images", "audio_speech", "audio_transcriptions", "audio_translations"))  # endpoints with output
_IMAGES = frozenset(("image_url", "input_image", "image"))
_FILES = frozenset(("file", "input_file", "document", "input_audio", "audio_url", "audio", "video_url", "video"))
_PAYLOADS = ("data", "file_data", "content")
_REFERENCES = ("file_id", "file_url", "url")  # to a file elsewhere; a URL may be the file itself: data:…
_SCHEME_CHARS = 16  # in which a URL has its ://
_UNREAD = frozenset(("image_url", "source", "input_audio", "file", "data", "file_data"))  # much, but no text
_BEFORE_MESSAGES = ("system", "instructions", "tools", "functions")
_BYTES_PER_ESTIMATED_TOKEN = 5  # at most: see `estimate_tokens`
_PART_TOKENS = 16  # that a chat's template may put around a message or a part of one


class Beginning(str):
    """The beginning of a long string, which is all that was kept, and an estimate of the tokens of the whole."""

    __slots__ = ("tokens",)
    tokens: int

    def __new__(cls, text: str, tokens: int) -> Beginning:
        made = super().__new__(cls, text)
        made.tokens = tokens
        return made


def estimate_tokens(text: str) -> int:
    """Roughly the tokens of a text.

    >>> estimate_tokens("How long do I boil an egg?"), estimate_tokens("法院判决"), estimate_tokens("3.14159")
    (6, 4, 7)
    """
    if isinstance(text, Beginning):
        return text.tokens
    if text.isascii():
        others = len(text.encode().translate(None, _LETTERS))
        return int((len(text) - others) / LETTERS_PER_TOKEN) + others
    encoded = text.encode(errors="replace")
    without_letters = encoded.translate(None, _LETTERS)
    beyond = without_letters.translate(None, _CONTINUING)
    singly = beyond.translate(None, _OTHER_ALPHABETS)
    letters = (len(encoded) - len(without_letters)) / LETTERS_PER_TOKEN
    return int(letters + (len(beyond) - len(singly)) / CHARS_PER_TOKEN) + len(singly)


def estimate_all(values: list[Any]) -> int:
    """Roughly the tokens of JSON values, names included."""
    tokens, left = 0, list(values)
    while left:
        value = left.pop()
        if isinstance(value, str):
            tokens += estimate_tokens(value)
        elif isinstance(value, dict):
            left += value
            left += value.values()
        elif isinstance(value, list):
            left += value
        else:
            tokens += 1
    return tokens


class RequestBound(NamedTuple):
    """The most tokens of a prompt, and of all its answers together."""

    prompt: int
    answer: int


def bound_prompt(values: Mapping[str, Any], content_bytes: int, text_tokens: int) -> tuple[int, int]:
    """The most tokens of a prompt whose JSON has so many bytes, and its texts an estimate of so many tokens.

    The second number is of the files in it that only the expert sees: given by an id or a URL.
    """
    images = files = unseen = parts = 0
    left: list[Any] = [values.get(name) for name in ("messages", "input")]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            kind = value.get("type")
            if isinstance(kind, str) and kind in _FILES:
                files += 1
                unseen += not _is_carried(value, kind)
            images += isinstance(kind, str) and kind in _IMAGES
            # where a part's file comes from may have the type "file", and is none of its own
            left += [
                list(inner.values()) if name == "source" and isinstance(inner, dict) else inner
                for name, inner in value.items()
            ]
        elif isinstance(value, list):
            left += value
        parts += 1
    texts = content_bytes
    if images and not files:
        texts = min(texts, _BYTES_PER_ESTIMATED_TOKEN * text_tokens + _PART_TOKENS * parts)
    return texts + IMAGE_TOKENS * images, unseen


def _is_carried(part: Mapping[str, Any], kind: str) -> bool:
    """Whether a file is in the request itself. One whose field was not kept, in a large request, counts as unseen."""
    is_carried = False
    for holder in (part, part.get(kind), part.get("source")):
        fields = {"url": holder} if isinstance(holder, str) else holder if isinstance(holder, dict) else {}
        for name in (*_PAYLOADS, *_REFERENCES):
            if (value := fields.get(name)) is None:
                continue
            head = value[:_SCHEME_CHARS] if isinstance(value, str) else ""
            is_carried = "://" not in head if name in _PAYLOADS else head.startswith("data:")
            if not is_carried:
                return False
    return is_carried


def find_bound(
    wire: WireFormat, values: Mapping[str, Any], config: ExpertConfig, *, prompt_tokens: int, unseen: int = 0
) -> RequestBound:
    """What a request can take if this expert answers it; `unseen` is how much it reads that is not in the request.

    >>> from ir3de_gateway.wire import FORMATS
    >>> expert = ExpertConfig(name="law", base_url="http://127.0.0.1:8001/v1")
    >>> asked = {"max_completion_tokens": 5, "max_tokens": "50", "n": 100}
    >>> find_bound(FORMATS["chat/completions"], asked, expert, prompt_tokens=90)
    RequestBound(prompt=90, answer=5000)
    """
    window = config.context_window or MAX_TOKENS
    prompt = prompt_tokens + len((config.system_prompt or "").encode())
    prompt += unseen * (config.context_window or UNSEEN_TOKENS)
    answer = 0
    if wire.is_sampled:
        sent = {**config.defaults, **values}
        limit = find_answer_limit(wire, sent, config)
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


def find_answer_limit(wire: WireFormat, values: Mapping[str, Any], config: ExpertConfig) -> int:
    """The most tokens of one answer; the expert's longest, where it may take the request for one without a limit.

    A server may know only one of several names. It reads those that its configuration has defaults for.
    """
    known = [name for name in wire.answer_limits if name in config.defaults] or wire.answer_limits
    names = {*known, *(name for name in wire.answer_limits if values.get(name) is not None)}
    is_limited = all(_read_number(values.get(name)) for name in names)  # 0 and -1 mean no limit in some servers
    return max(0 if is_limited else find_longest_answer(config), read_answer_limit(values))


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


def count_before(values: Mapping[str, Any], places: Sequence[int], turns: int) -> list[int]:
    """Roughly the tokens before each of these turns; `turns` is how many there are with those of system fields."""
    messages = values.get("messages", values.get("input"))
    if not isinstance(messages, list):
        return [0] * len(places)
    shift = turns - len(messages)  # a system field counts as a turn
    counts, total, wanted = list[int](), sum(_count_chars(values.get(name)) for name in _BEFORE_MESSAGES), iter(places)
    place = next(wanted, None)
    for number, message in enumerate(messages):
        while place is not None and place - shift <= number:
            counts.append(int(total / LETTERS_PER_TOKEN))
            place = next(wanted, None)
        total += _count_chars(message)
    return counts


def _count_chars(value: Any) -> int:
    """The characters of all texts in a value, without those of files."""
    if isinstance(value, Beginning):
        return int(value.tokens * LETTERS_PER_TOKEN)
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return sum(map(_count_chars, value))
    if isinstance(value, dict):
        return sum(_count_chars(one) for name, one in value.items() if name not in _UNREAD)
    return 0
