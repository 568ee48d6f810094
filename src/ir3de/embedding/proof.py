"""The proof that a fast tokenizer engine gives the reference engine's ids, made once for each tokenizer.

Two engines that implement one tokenizer differ, if at all, in how they class characters (what is a digit, a letter,
a space) and in how they treat bytes that the vocabulary lacks. So the proof walks through Unicode in a few contexts
and notes the characters on which the ids differ. Beyond ASCII one such character makes its whole Unicode category
doubtful, because splitting rules are written in categories. Next come all short sequences of what splitting rules
single out: white space of every kind, apostrophes, letters, digits, marks. Where the ids differ, the usual suspects
found there (`_SUSPECTS`, or a symbol before an apostrophe) become doubtful, else the first two characters do. Texts
with anything doubtful are left to the reference engine; very long ones, which the fast engine would cut at random,
are cut between words, where that is proven harmless. Then a panel of awkward texts must agree entirely. An engine that
is wrong on single ASCII characters other than control characters, on many sequences, or on the panel, is not used.

A proof takes seconds. Those of the two vocabularies that IR3DE provides are below, for the version of the engine that
the tests prove them with. For other vocabularies, and other versions of the engine, a proof is made at run time.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ir3de import files
from ir3de.errors import ArtifactError

if TYPE_CHECKING:
    from types import ModuleType

    from ir3de.kernel import Reader

# a longer text is cut by the fast engine into one piece for each core, wherever white space happens to be
LONGEST_IN_CHARACTERS = 16_383  # at most 65,532 bytes
BASIC_PLANE = 0x10000  # the code points below have all letters of nearly all texts

EncodeBatch = Callable[[Sequence[str]], tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64]]]


@dataclass(frozen=True)
class Proof:
    """An engine's version, and the texts it is not trusted with: code points, as first and last of ranges, and strings.

    `symbol_apostrophe` doubts an apostrophe after a symbol beyond ASCII. `cuttable`: a text may be cut before a space
    between two words and its pieces encoded one by one. `normalised`: the engine is given texts that
    `fast_tokenizer.normalise` has normalised.
    """

    version: str
    doubtful: Sequence[Sequence[int]] = ()
    doubtful_strings: Sequence[str] = ()
    symbol_apostrophe: bool = False
    cuttable: bool = False
    normalised: bool = False

    def __reduce__(self) -> tuple[type[Proof], tuple[Any, ...]]:
        return Proof, tuple(getattr(self, one.name) for one in fields(self))  # without the functions made of it

    def to_dict(self) -> dict[str, Any]:
        """For a header; `normalised` is left out where it is false, as in files of earlier versions."""
        return {name: value for name, value in asdict(self).items() if name != "normalised" or value}

    @cached_property
    def doubts(self) -> Callable[[str], bool]:
        """Whether a text is very long, or holds something doubtful."""
        # up to U+FFFF a class of characters is one bitmap; beyond, each range costs a comparison at every character, so
        # only texts with any character from there are searched for them
        low = [(first, last) for first, last in self.doubtful if first <= 0xFFFF]
        high = _join_ranges([(first, last) for first, last in self.doubtful if first > 0xFFFF])
        suspect, doubtful = _search([*low, (0x10000, 0x10FFFF)] if high else low), _search([*low, *high])
        in_ascii = [string for string in (*self._control, *self.doubtful_strings) if string.isascii()]
        first_characters = tuple(dict.fromkeys(string[0] for string in in_ascii))  # one is found faster than two
        strings, symbols = self.doubtful_strings, self.symbol_apostrophe

        def doubts(text: str) -> bool:
            if text.isascii():
                for character in first_characters:  # a few memchr calls: any() would double their time
                    if character in text:
                        return len(text) > LONGEST_IN_CHARACTERS or any(map(text.__contains__, in_ascii))
                return len(text) > LONGEST_IN_CHARACTERS
            if len(text) > LONGEST_IN_CHARACTERS or (suspect(text) is not None and doubtful(text) is not None):
                return True
            for string in strings:
                if string in text:
                    return True
            return symbols and _has_symbol_apostrophe(text)

        return doubts

    def doubts_any(self, texts: Sequence[str]) -> bool:
        """Whether one of many texts may be doubtful: a tenth of the time of `doubts` for each, and never a wrong no."""
        if max(map(len, texts), default=0) > LONGEST_IN_CHARACTERS:
            return True
        # apart, because one character beyond ASCII would make all the text two or four times as long to look through
        in_ascii = "".join([text for text in texts if text.isascii()])
        if any(map(in_ascii.__contains__, (*self._control, *self.doubtful_strings))):
            return True
        beyond = "".join([text for text in texts if not text.isascii()])
        points = np.frombuffer(beyond.encode("utf-32-le", "surrogatepass"), np.uint32)
        if bool(self._bitmap.take(points).any()) or any(map(beyond.__contains__, self.doubtful_strings)):
            return True
        before = np.unique(points[:-1][points[1:] == ord("'")])
        return self.symbol_apostrophe and any(_is_symbol(chr(point)) for point in before.tolist())

    def make_reader(self, native: ModuleType, longest: int, changes: int) -> Reader:
        """What finds texts that are surely not doubtful, by the native kernel; see `Tokenizer.encode`."""
        table = self._bitmap[:BASIC_PLANE].copy()
        table[[ord(string[0]) for string in self.doubtful_strings if ord(string[0]) < BASIC_PLANE]] = True
        made: Reader = native.Reader(table, self.symbol_apostrophe, longest, changes)
        return made

    @cached_property
    def _control(self) -> str:
        return "".join(chr(point) for first, last in self.doubtful for point in range(first, min(last, 0x7F) + 1))

    @cached_property
    def _bitmap(self) -> npt.NDArray[np.bool_]:
        bitmap = np.zeros(0x110000, bool)
        for first, last in self.doubtful:
            bitmap[first : last + 1] = True
        return bitmap


# by the SHA-256 of the tokenizer and the version of the engine: the bundled vocabulary, and the multilingual one
TESTED_PROOFS = {
    ("876dc8becfa9e681e821bc424c78190144dbc0f9f8d3062f1e3a42d60a1c49e1", "0.1.4"): Proof(
        "0.1.4",
        [
            *([4, 4], [6, 6], [19, 20], [22, 22], [29, 29], [5870, 5872], [8544, 8578], [8581, 8584], [12295, 12295]),
            *([12321, 12329], [12344, 12346], [42726, 42735], [65856, 65908], [66369, 66369], [66378, 66378]),
            *([66513, 66517], [74752, 74862], [262144, 917503]),
        ],
        ["\x0b", "\x0c", "\t'"],
        symbol_apostrophe=True,
        cuttable=True,
    ),
    ("3597a90b5d8924111f0c3b113793dbaecda1533ce9fedccc990e4f97b2b978d8", "0.1.4"): Proof(
        "0.1.4", [], [], cuttable=True, normalised=True
    ),
}


def _is_symbol(character: str) -> bool:
    return not character.isascii() and not character.isalnum()


def _has_symbol_apostrophe(text: str) -> bool:
    found = text.find("'", 1)
    while found > 0:
        if _is_symbol(text[found - 1]):
            return True
        found = text.find("'", found + 1)
    return False


def _search(ranges: Sequence[Sequence[int]]) -> Callable[[str], object]:
    """A search for any character in the ranges."""
    pattern = "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in ranges)
    return re.compile(f"[{pattern}]" if ranges else r"(?!)").search


def cut(text: str, longest: int = LONGEST_IN_CHARACTERS) -> list[str] | None:
    """The text in pieces of at most so many characters, cut before a space between two words; None if it has none."""
    pieces, begin = [], 0
    while len(text) - begin > longest:
        found = _UP_TO_THE_LAST_CUT.match(text, begin, begin + longest)
        if found is None:
            return None
        pieces.append(text[begin : found.end()])
        begin = found.end()
    return [*pieces, text[begin:]]


_UP_TO_THE_LAST_CUT = re.compile(r".*[a-z](?= [a-z])", re.DOTALL)
_CUT = re.compile(r"(?<=[a-z])(?= [a-z])")


def prove(fast: EncodeBatch, reference: EncodeBatch, version: str) -> Proof | None:
    """Compare two engines on all of Unicode and on the panel; None if the fast one is not to be used."""
    points = _points()
    texts = [context.replace("_", chr(point)) for context in _CONTEXTS for point in points]
    wrong = {points[i % len(points)] for i in _differences(texts, fast, reference)}
    if any(point < 0x80 and (chr(point) in "\t\n\r" or _category(point) != "Cc") for point in wrong):
        return None
    condemned = {_category(point) for point in wrong if point >= 0x80}
    doubtful = sorted(
        {point for point in wrong if point < 0x80}
        | {point for point in range(0x80, 0x110000) if condemned and _category(point) in condemned}
    )
    single = Proof(version, _join_ranges([[point, point] for point in doubtful], gap=1))
    short = [text for text in _short_sequences(3) if not single.doubts(text)]
    differing = [short[i] for i in _differences(short, fast, reference)]
    strings, symbols, left = _explain_differences(differing)
    if len(left) > MOST_DOUBTFUL_PAIRS:
        return None
    proof = Proof(version, single.doubtful, [*strings, *left], symbols, _is_cuttable(reference))
    panel = [text for text in (*_short_sequences(4)[::37], *PANEL) if not proof.doubts(text)]
    # by itself too: a text alone in its batch is the one that an engine cuts up
    return None if any(_differences(texts, fast, reference) for texts in (panel, [LONG])) else proof


def _explain_differences(differing: Sequence[str]) -> tuple[list[str], bool, list[str]]:
    """The suspects that account for the differences, whether symbols before apostrophes do, and pairs for the rest."""
    strings: list[str] = []
    for suspect in _SUSPECTS:
        if any(suspect in text for text in differing):
            strings.append(suspect)
            differing = [text for text in differing if suspect not in text]
    rest = [text for text in differing if not _has_symbol_apostrophe(text)]
    return strings, len(rest) < len(differing), sorted({text[:2] for text in rest})


def _is_cuttable(reference: EncodeBatch) -> bool:
    """Whether pieces encode to the ids of the whole, cutting the panel's texts at every place there is."""
    wholes = [text for text in (LONG, *PANEL) if _CUT.search(text)]
    pieces = [piece for text in wholes for piece in _CUT.split(text)]
    return np.array_equal(reference(wholes)[0], reference(pieces)[0])


MOST_DOUBTFUL_PAIRS = 4  # an engine with more implements another splitting rule

# rare white space, and a tab before a contraction: engines have differed there
_SUSPECTS = ("\x0b", "\x0c", "\x1c", "\x1f", "\x85", "\u2028", "\t'")

# what splitting rules single out: contractions, letters of two cases, digits, white space, line ends, marks, symbols
_SINGLED_OUT = (
    *("'", "s", "t", "ll", "a", "B", "1", ".", "_", " ", "\t", "\n", "\r", "\x0b", "\x0c", "\x1c", "\x1f"),
    *("é", "\u0301", "\x85", "\u00a0", "\u2028", "\u3000", "ⓐ", "☃", "😀", "²", "字", "’", "\u200b"),
)


def _short_sequences(length: int) -> list[str]:
    """All sequences of so many of the characters that rules single out."""
    return ["".join(parts) for parts in product(_SINGLED_OUT, repeat=length)]


_CONTEXTS = (" _a", "1__.", "\n_ _", "_")

# wide uniform blocks, of which every 64th character stands for the rest
_UNIFORM = ((0x3400, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xF8FF), (0x17000, 0x18CFF), (0x20000, 0x10FFFF))
_EMPTY_PLANES = (0x40000, 0xDFFFF)
_EVERY = {"empty plane": 0x8000, "Cn": 4}  # beyond U+FFFF: unassigned characters come in long runs


def _category(point: int) -> str:
    """The Unicode category; planes without a single character are a category of their own."""
    return "empty plane" if _EMPTY_PLANES[0] <= point <= _EMPTY_PLANES[1] else unicodedata.category(chr(point))


def _points() -> list[int]:
    """The code points to compare, uniform blocks thinned out. Unassigned ones too: engines know different Unicodes."""
    uniform = {point for first, last in _UNIFORM for point in range(first, last + 1) if point % 64}
    return [
        point
        for point in range(0x110000)
        if point not in uniform and point % _EVERY.get(_category(point) if point > 0xFFFF else "", 1) == 0
        if _category(point) != "Cs"
    ]


def _join_ranges(ranges: Sequence[Sequence[int]], gap: int = 0x3000) -> list[list[int]]:
    """Sorted ranges, those at most `gap` apart made one."""
    joined: list[list[int]] = []
    for first, last in ranges:
        if joined and first - joined[-1][1] <= gap:
            joined[-1][1] = last
        else:
            joined.append([first, last])
    return joined


def _differences(texts: Sequence[str], fast: EncodeBatch, reference: EncodeBatch) -> list[int]:
    """Indices of the texts that the two engines encode differently."""
    ids, lengths = fast(texts)
    expected_ids, expected_lengths = reference(texts)
    if np.array_equal(lengths, expected_lengths) and np.array_equal(ids, expected_ids):
        return []
    found = np.split(ids, np.cumsum(lengths.astype(np.int64)))
    expected = np.split(expected_ids, np.cumsum(expected_lengths.astype(np.int64)))
    return [i for i in range(len(texts)) if not np.array_equal(found[i], expected[i])]


KIND, VERSION = "ir3de.proof", 1


def get_proof(tokenizer_sha256: str, engine_version: str, make: Callable[[], Proof | None]) -> Proof | None:
    """The proof from this user's cache; otherwise it is made and cached. None: the engine may not be used."""
    unicode_version = unicodedata.unidata_version  # a proof walks through Unicode as this Python knows it
    name = f"{tokenizer_sha256[:32]}-{engine_version}-unicode-{unicode_version}.json"
    path = files.user_cache("proofs") / name
    with suppress(ArtifactError, KeyError, TypeError):  # an unreadable cache counts as absent
        header = files.read_json(path, kind=KIND, version=VERSION)
        files.check_seal(header, path)
        return None if header["proof"] is None else Proof(**header["proof"])
    proof = make()
    with suppress(ArtifactError):  # a home folder may be read-only
        files.make_folder(path.parent)
        described = None if proof is None else proof.to_dict()
        files.write(path, files.to_json(files.seal({"kind": KIND, "version": VERSION, "proof": described})))
    return proof


# Awkward texts: an engine that gets all of these right is trusted with the rest. Each is here because tokenizers have
# disagreed on its kind: contractions, digit runs, white space around line ends, scripts without spaces, combining
# marks, emoji sequences, control characters, special tokens, very long words.
_WRITTEN = json.loads(Path(__file__).with_name("awkward_texts.json").read_text(encoding="utf-8"))
_REPEATED = ("ACGT" * 60, "a" * 300, "ab " * 100, "9" * 200, " " * 130 + "x", "\n" * 70 + "y", "é" * 90, "字" * 120)
_SEEDS: tuple[str, ...] = (*_WRITTEN, *_REPEATED, "aA1!" * 40)

# just under 64 KiB: an engine that cuts texts of this length at white space would split the runs of spaces
LONG = ("word" + " " * 37) * (65_535 // 41)

PANEL: tuple[str, ...] = (
    *_SEEDS,
    *(seed.upper() for seed in _SEEDS),
    *(" " + seed[::-1] for seed in _SEEDS),
    *(seed.replace(" ", "") for seed in _SEEDS),
    "\n".join(_SEEDS),
)
