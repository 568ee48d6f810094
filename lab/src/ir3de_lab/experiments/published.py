"""What the paper itself printed: its three tables, so that ours can be read beside them.

Source: *IR3DE: A Linear Router for Large Language Models* (Fanì and Ersoy), tables `tab:clm`, `tab:clm2` and
`tab:reasoning`, and the text below them for the numbers of tokens and neighbours. Its experts are others (Llama 3 of
115M, 1B and 3B parameters) on other texts: what can be compared is how routers stand to one another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

SOURCE = "Fanì and Ersoy, IR3DE: A Linear Router for Large Language Models"


_TRUNCATED = (
    "The paper's perplexities are those of the first 256 items that each expert was sent: the table by the evaluation "
    "of the protocol 'authors' does the same."
)


@dataclass(frozen=True)
class Published:
    """One table of the paper, in percent of the domains' own experts; a row ends in its printed average."""

    label: str  # in the paper's source
    domains: tuple[str, ...]
    k: int  # tokens that vote in the row IR3DE, the best of nine on the test prompts
    neighbours: int  # of the row kNN router, the best of three on the test prompts
    rows: Mapping[str, tuple[float, ...]]
    notes: tuple[str, ...] = ()  # what is to be known of its figures, read in the authors' code

    def average(self, row: str) -> float:
        """The average as printed."""
        return self.rows[row][-1]

    def mean(self, row: str) -> float:
        """The mean of the row's printed figures, to one digit; the printed average is another number in some rows.

        In decimal arithmetic: 98.05 is rounded up as on paper, by every version of Python.
        """
        total = sum((Decimal(str(figure)) for figure in self.rows[row][:-1]), Decimal(0))
        return float((total / len(self.domains)).quantize(Decimal("0.1"), ROUND_HALF_UP))


HERE: dict[str, tuple[str, ...]] = {  # how the rows of ours that belong to one of the paper's begin, if not by its name
    "Instr. following expert": ("Instruction expert",),
    "kNN router": ("kNN, ",),
    "IR3DE": ("IR3DE, ",),
    "MoDEM-large": ("MoDEM-large", "MoDEM-small/large"),
}

PUBLISHED = {
    "clm": Published(
        "tab:clm",
        ("coding", "math", "physics", "history", "philosophy"),
        k=100,
        neighbours=10,
        rows={
            # as printed: the mean of the Coding expert's row is 89.2, not 86.3, and that of the Physics expert's 83.2
            "Coding expert": (100.0, 76.1, 84.9, 99.4, 85.8, 86.3),
            "Math expert": (93.5, 100.0, 84.7, 79.7, 81.1, 87.8),
            "Physics expert": (86.9, 68.2, 100.0, 75.1, 86.0, 85.3),
            "History expert": (74.2, 49.3, 74.6, 100.0, 98.7, 79.4),
            "Philosophy expert": (75.6, 51.4, 75.5, 98.1, 100.0, 80.1),
            "Experts average": (90.9, 72.2, 88.4, 93.5, 94.4, 87.9),
            "Random router": (84.9, 67.0, 84.1, 89.1, 90.3, 83.1),
            "MoDEM-small": (97.0, 95.9, 94.2, 98.5, 102.0, 97.6),
            "MoDEM-large": (97.4, 95.5, 97.3, 99.4, 102.0, 98.3),
            "kNN router": (99.9, 100.2, 99.5, 99.5, 100.7, 100.0),
            "IR3DE-avg": (99.9, 94.4, 100.6, 97.5, 97.5, 98.2),
            "IR3DE-all": (99.8, 101.6, 101.2, 98.5, 98.6, 100.0),
            "IR3DE": (99.1, 94.6, 99.5, 98.1, 98.6, 98.2),
        },
        notes=(_TRUNCATED,),
    ),
    "clm-large": Published(
        "tab:clm2",
        ("math", "biology", "legal", "dialogue"),
        k=10,
        neighbours=1,
        rows={  # every printed average of this table is the mean of its row without the first column
            "Math expert": (100.0, 91.5, 41.2, 89.5, 74.1),
            "Biology expert": (71.4, 100.0, 30.9, 65.4, 65.4),
            "Legal expert": (71.4, 86.0, 100.0, 89.5, 91.8),
            "Dialogue expert": (66.4, 87.8, 33.0, 100.0, 73.6),
            "Experts average": (79.8, 93.5, 49.7, 89.5, 77.5),
            "Random router": (75.7, 88.3, 45.1, 87.2, 73.5),
            "MoDEM-small": (93.5, 89.0, 86.2, 84.2, 86.5),
            "MoDEM-large": (97.5, 95.8, 85.8, 79.4, 87.0),
            "kNN router": (98.4, 96.2, 98.8, 98.8, 97.9),
            "IR3DE-avg": (88.1, 90.3, 82.7, 99.4, 90.8),
            "IR3DE-all": (86.6, 90.1, 87.0, 98.8, 92.0),
            "IR3DE": (98.5, 95.8, 92.5, 97.7, 95.3),
        },
        notes=(
            "The paper's printed average leaves Math out: in all twelve rows it is the mean of Biology, Legal and "
            "Dialogue.",
            _TRUNCATED,
            "Its perplexities also count the padding of texts that are shorter than 1,024 tokens; these do not.",
        ),
    ),
    "reasoning": Published(
        "tab:reasoning",
        ("math", "multilingual", "coding", "instruction"),
        k=10,
        neighbours=1,
        rows={
            "Math expert": (100.0, 95.7, 78.4, 43.8, 79.5),
            "Multilingual expert": (6.1, 100.0, 73.1, 21.2, 50.1),
            "Coding expert": (11.7, 99.1, 100.0, 55.2, 66.5),
            "Instr. following expert": (28.9, 99.7, 80.1, 100.0, 77.2),
            "Experts average": (45.9, 100.0, 83.9, 53.4, 70.8),
            "Random router": (37.7, 98.4, 83.8, 59.3, 69.8),
            "MoDEM-small": (29.5, 98.6, 69.5, 100.3, 74.5),
            "MoDEM-large": (29.5, 96.7, 67.7, 95.3, 72.3),
            "kNN router": (95.8, 99.5, 96.3, 98.7, 97.6),
            "IR3DE-avg": (97.3, 99.9, 85.6, 101.2, 96.0),
            "IR3DE-all": (91.5, 99.1, 89.2, 100.1, 95.0),
            "IR3DE": (98.4, 99.9, 94.5, 100.6, 98.4),
        },
        notes=(
            "The paper's MoDEM was trained on other corpora (dart-math, aya, Magicoder, tulu-3) than its IR3DE and "
            "kNN, which were fitted on prompts of the four tasks; here all routers are fitted on the same prompts.",
            "Its IR3DE and kNN were fitted on the test prompts of HumanEval and IFEval; here only the protocols "
            "'authors' and 'leak' do so.",
            "IFEval: the paper's text counts responses that follow all of their instructions, its code counts "
            "instructions. Here instructions are counted, and the table by response has both.",
            "Its answers were drawn at temperature 0.7; here decoding is greedy.",
        ),
    ),
}
