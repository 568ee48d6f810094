"""Awkward texts: an engine that gets all of these right is trusted with the rest."""

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
    *("   leading", "trailing   ", "\n", " ", "  ", "\t", "\n\n\n", " \n ", "\r\n", "\u00a0", ""),
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
    *(
        "ACGT" * 60,
        "a" * 300,
        "ab " * 100,
        "9" * 200,
        " " * 130 + "x",
        "\n" * 70 + "y",
        "é" * 90,
        "字" * 120,
        "aA1!" * 40,
    ),
)

# just under 64 KiB: an engine that cuts texts of this length at white space would split the runs of spaces
LONG = ("word" + " " * 37) * (65_535 // 41)

PANEL: tuple[str, ...] = (
    *_SEEDS,
    *(seed.upper() for seed in _SEEDS),
    *(" " + seed[::-1] for seed in _SEEDS),
    *(seed.replace(" ", "") for seed in _SEEDS),
    "\n".join(_SEEDS),
)
