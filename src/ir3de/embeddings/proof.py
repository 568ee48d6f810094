"""The proof that a fast tokenizer engine gives the reference engine's ids, made once for each tokenizer.

Two engines that implement one tokenizer differ, if at all, in how they class characters (what is a digit, a letter,
a space) and in what they do with bytes the vocabulary lacks. So the proof walks through Unicode in a few contexts
and notes the characters on which the ids differ. Beyond ASCII one such character condemns its whole Unicode
category, because splitting rules are written in categories. Texts with a condemned character are left to the
reference engine. Then a panel of awkward texts must agree entirely. An engine that is wrong on ASCII other than
control characters, or on the panel, is not used at all.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

EncodeBatch = Callable[[Sequence[str]], tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64]]]


@dataclass(frozen=True)
class Proof:
    """An engine's version and the ranges of code points, first and last, on which it is not to be trusted."""

    version: str
    doubtful: Sequence[Sequence[int]] = ()

    @cached_property
    def doubts(self) -> Callable[[str], bool]:
        """Whether a text holds a doubtful character."""
        if not self.doubtful:
            return lambda text: False
        control = self._control
        # up to U+FFFF ranges compile to one bitmap; beyond, each is a comparison more, so near ones are joined
        ranges = [*(r for r in self.doubtful if r[0] <= 0xFFFF), *_joined([r for r in self.doubtful if r[0] > 0xFFFF])]
        pattern = "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in ranges)
        search = re.compile(f"[{pattern}]").search

        def doubts(text: str) -> bool:
            if not text.isascii():
                return search(text) is not None
            for character in control:  # noqa: SIM110 - a few memchr calls: any() would double their time
                if character in text:
                    return True
            return False

        return doubts

    def doubts_any(self, texts: Sequence[str]) -> bool:
        """Whether one of many texts holds a doubtful character: a tenth of the time of asking one by one."""
        if not self.doubtful:
            return False
        ascii_texts = "".join([text for text in texts if text.isascii()])
        if any(character in ascii_texts for character in self._control):
            return True
        others = "".join([text for text in texts if not text.isascii()])
        points = np.frombuffer(others.encode("utf-32-le", "surrogatepass"), np.uint32)
        return bool(self._bitmap.take(points).any())

    @cached_property
    def _control(self) -> str:
        return "".join(chr(point) for first, last in self.doubtful if last < 0x80 for point in range(first, last + 1))

    @cached_property
    def _bitmap(self) -> npt.NDArray[np.bool_]:
        bitmap = np.zeros(0x110000, bool)
        for first, last in self.doubtful:
            bitmap[first : last + 1] = True
        return bitmap


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
    proof = Proof(version, _joined([[point, point] for point in doubtful], gap=1))
    panel = [text for text in PANEL if not proof.doubts(text)]
    return None if _differences(panel, fast, reference) else proof


_CONTEXTS = (" _a", "1__.", "\n_ _", "_")

# wide uniform blocks, of which every 64th character stands for the rest
_UNIFORM = ((0x3400, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xF8FF), (0x17000, 0x18CFF), (0x20000, 0x10FFFF))
_EMPTY_PLANES = (0x40000, 0xDFFFF)


def _category(point: int) -> str:
    """The Unicode category; planes without a single character are a category of their own."""
    return "empty plane" if _EMPTY_PLANES[0] <= point <= _EMPTY_PLANES[1] else unicodedata.category(chr(point))


def _points() -> list[int]:
    """The code points to compare: every assigned character, uniform blocks thinned out, and where each gap begins."""
    uniform = {point for first, last in _UNIFORM for point in range(first, last + 1) if point % 64}
    points = []
    before = ""
    for point in range(0x110000):
        category = _category(point)
        thinned = point % 0x8000 if category == "empty plane" else category == "Cn" == before and point % 64
        if category != "Cs" and not thinned and (point not in uniform or category == "Cn"):
            points.append(point)
        before = category
    return points


def _joined(ranges: Sequence[Sequence[int]], gap: int = 0x3000) -> list[list[int]]:
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


# each is here because tokenizers have disagreed on its kind: contractions, digit runs, white space around line ends,
# scripts without spaces, combining marks, emoji sequences, control characters, special tokens, very long words
_SEEDS = (
    "Natalia sold clips to 48 of her friends in April; how many did she sell altogether?",
    "I'm sure they'll say we've won, he'd've gone, it's Ann's. I'M, WE'LL, don’t, l’été, O'Brien's",
    "def f(x: int) -> int:\n    if x <= 1:\n\t\treturn 1\n    return x * f(x - 1)  # n!\n",
    "for (int i = 0; i < 10; ++i) { a[i] = b->c ? *p : &q; }\r\n\r\n// done\r\n",
    r"\begin{align} \int_0^\infty e^{-x^2}\,dx &= \frac{\sqrt{\pi}}{2} \end{align} $\forall\epsilon>0$",
    "SELECT a.id, COUNT(*) FROM t AS a WHERE name LIKE '%x_y%' GROUP BY 1;",
    '<div class="a-b" id=\'c\'>&nbsp;&lt;x&gt;</div> {"k": [1, 2.50, -3e-7, null]}',
    "1234567890 12,345.678 0x1F 1e10 3.14159 ½ ¾ ² ³ ① Ⅷ ٣٤٥ ३४५ 12:30 2024-02-29 +1 (555) 010-9999",
    "word  two   three    four\t\ttabs \n newline \n\n  two\n   three\u00a0nbsp\u2003em\u3000ideographic",
    "   leading",
    "trailing   ",
    "\n",
    " ",
    "  ",
    "\t",
    "\n\n\n",
    " \n ",
    "\r\n",
    "\u00a0",
    "",
    "Der Fluss führt Hochwasser; Straße, Übergrößenträger, ÄÖÜß. Où êtes-vous ?",
    "¿Qué pasó? ¡Olé! Ænima, Łódź, İstanbul, ıI",
    "Быстрая коричневая лиса перепрыгнула через ленивую собаку. Їжак. Ђурђевак. Ωμέγα, ἄνθρωπος",
    "这是一个测试。請問數學題怎麼做？日本語のテスト、カタカナとひらがな。ｆｕｌｌｗｉｄｔｈ １２３",
    "한국어 시험입니다. 안녕하세요? 각 각",
    "สวัสดีครับ ภาษาไทยไม่มีช่องว่าง",
    "ភាសាខ្មែរ မြန်မာဘာသာ ລາວ བོད་ཡིག",
    "مرحبا بالعالم، كيف حالك؟ שלום עולם \u200f\u200e \u202eabc\u202c",
    "नमस्ते दुनिया, यह हिन्दी है। বাংলা தமிழ் తెలుగు ಕನ್ನಡ മലയാളം ગુજરાતી ਪੰਜਾਬੀ සිංහල",
    "ქართული ენა, Հայերեն, አማርኛ, ᏣᎳᎩ, ߒߞߏ",
    "e\u0301 vs é, n\u0303 vs ñ, A\u030a vs Å, \u1100\u1161\u11a8 vs 각, ﬁ ligature, Ǆ ǅ ǆ",
    "👋🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇫🇷🇩🇪 ❤️ ☺︎ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛 🙂🙂🙂",
    "nul \x00 bell \x07 esc \x1b[31m del \x7f nel \x85 zwsp \u200b bom \ufeff soft\u00adhyphen \u2028 line \u2029 para",
    "\ufffd\ufffe \U000f0000 \U0010ffff private \ue000 end",
    "<|endoftext|> <|im_start|>user\nhi<|im_end|> <s> </s> [CLS] [SEP] [UNK] [MASK] <pad> <unk> <mask> <|not_special|>",
    "https://example.org/a/b?c=d&e=%20f#g user.name+tag@mail.example C:\\dir\\file.txt ../x/y.tar.gz --flag=value",
    "snake_case camelCase PascalCase kebab-case SCREAMING_SNAKE a1b2c3 x86_64 utf8mb4 i18n",
    "!!! ??? ... …… ---- ==== //// \\\\\\\\ #### $$$$ %%%% ^^^^ &&&& **** (((( )))) [[ ]] {{ }} <<>> ~~ `` '' \"\"",
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis Donaudampfschifffahrtsgesellschaft",
    "ACGT" * 60,
    "a" * 300,
    "ab " * 100,
    "9" * 200,
    " " * 130 + "x",
    "\n" * 70 + "y",
    "é" * 90,
    "字" * 120,
    "aA1!" * 40,
)

PANEL: tuple[str, ...] = (
    *_SEEDS,
    *(seed.upper() for seed in _SEEDS),
    *(" " + seed[::-1] for seed in _SEEDS),
    *(seed.replace(" ", "") for seed in _SEEDS),
    "\n".join(_SEEDS),
)
