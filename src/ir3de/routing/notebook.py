"""Routers, decisions and explanations as HTML, for notebooks.

Notebooks may be light or dark, and nothing says which. So text has the notebook's own colour, and the colours of
experts are laid under it half transparent. The HTML stands alone: no script, no file. Where a viewer drops styles,
tables and sentences are left that say the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from ir3de.routing.colours import Colour, find_colour, find_colours
from ir3de.routing.explanation import WordSum, count_digits, format_signed, shorten, tabulate_words
from ir3de.routing.shown import ShownDecision, ShownExplanation, ShownTurn

MAX_RANKED = 5  # experts of a decision
MAX_LISTED = 12  # experts of a router
MAX_ROWS = 10  # of a table of words
MAX_WORDS = 300  # drawn of a prompt
MAX_TURNS = 10
STRONGEST = 0.38  # how opaque the colour of the strongest word is
WEAK_SHARE = 0.05  # of the strongest word's contribution: what has less gets no colour
BAR_EM = 8
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")

# The background of rows is set by notebooks for more special selectors than these. MathJax would read "$" in a prompt.
STYLE = (
    "<style>.ir3de{line-height:1.5;overflow-x:auto}.ir3de p{margin:.3em 0;max-width:52em}.ir3de small{opacity:.7}"
    ".ir3de table{border-collapse:collapse;margin:.4em 0;border:0;font-variant-numeric:tabular-nums}"
    ".ir3de tr{background:none!important}"
    ".ir3de td,.ir3de th{text-align:right;padding:.1em .9em .1em 0;border:0;font-weight:400;white-space:nowrap}"
    ".ir3de th{opacity:.7}.ir3de td:first-child,.ir3de th:first-child,.ir3de td.b{text-align:left}</style>"
)
FRAME = '<div class="ir3de tex2jax_ignore mathjax_ignore">{style}{content}</div>'


def draw_decision(decision: ShownDecision) -> str:
    """The chosen expert, how sure that is or why the router abstained, and the best five experts as bars."""
    ranking = decision.ranking[:MAX_RANKED]
    largest = max(1.0, *(value for _, value in ranking)) if ranking else 1.0  # expected scores may be larger than 1
    colours = find_colours([expert for expert, _ in ranking], decision.experts)
    rows = [
        (_name(expert, colours[expert]), _bar(value / largest, colours[expert]), _value(decision, value))
        for expert, value in ranking
    ]
    more = len(decision.experts) - len(ranking)
    note = f"<p><small>… and {more:,} more</small></p>" if more > 0 else ""
    return _frame(_headline(decision) + _table(("expert", "", _value_name(decision)), rows) + note)


def draw_explanation(explanation: ShownExplanation) -> str:
    """The decision in a line, the prompt with its words in colours, a sentence, and a table of the strongest words."""
    return _frame(_headline(explanation.decision) + _draw_parts(explanation))


def draw_turn(found: ShownTurn) -> str:
    """Where a turn went, the share of each turn in that, and the words of the turn that decided."""
    why = "It begins a new subject." if found.changed else f"Turn {found.decided + 1} decided."
    rows = [
        (str(one.turn + 1), f"{100 * one.weight:.1f} %", f"{100 * one.lead:+.0f} %", _text(shorten(one.text, 60)))
        for one in found.weights[-MAX_TURNS:]
    ]
    turns = _table(("turn", "weight", "lead", ""), rows) if len(found.weights) > 1 else ""
    return _frame(f"{_headline(found.decision)}<p>{why}</p>{turns}{_draw_parts(found.deciding)}")


def draw_router(
    experts: Sequence[str], facts: Mapping[str, str], counts: Mapping[str, Sequence[int]], columns: Sequence[str]
) -> str:
    """What a router is: facts about it, and its experts with the numbers of `columns`."""
    told = "".join(f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>" for name, value in facts.items())
    rows = [
        (_name(expert, find_colour(place)), *(f"{number:,}" for number in counts.get(expert, ())))
        for place, expert in enumerate(experts[:MAX_LISTED])
    ]
    more = len(experts) - MAX_LISTED
    note = f"<p><small>… and {more:,} more</small></p>" if more > 0 else ""
    title = f"<p><b>Router</b> <small>{len(experts):,} {'expert' if len(experts) == 1 else 'experts'}</small></p>"
    facts_table = f'<table class="f">{told}</table>'
    return _frame(title + facts_table.replace("<td>", '<td class="b">') + _table(("expert", *columns), rows) + note)


def draw_figures(
    title: str, told: Iterable[str], heads: Sequence[str], rows: Iterable[tuple[str, ...]], experts: Sequence[str] = ()
) -> str:
    """A measurement: its title, sentences about it, and tables; the first column of `rows` names `experts`, if any."""
    sentences = "".join(f"<p>{_text(sentence)}</p>" for sentence in told)
    places = {expert: place for place, expert in enumerate(experts)}
    drawn = [
        (_name(first, find_colour(places[first])) if first in places else _text(first), *map(_text, rest))
        for first, *rest in rows
    ]
    more = len(drawn) - MAX_LISTED
    note = f"<p><small>… and {more:,} more</small></p>" if more > 0 else ""
    return _frame(f"<p><b>{_text(title)}</b></p>{sentences}{_table(heads, drawn[:MAX_LISTED])}{note}")


def _headline(decision: ShownDecision) -> str:
    value = decision.confidence if decision.expected_score is None else decision.expected_score
    said = f"{_value_name(decision)} {_value(decision, value or 0.0)}"
    if not decision.abstained:
        return f"<p><b>{_name_alone(decision.best, decision)}</b> <small>{said}</small></p>"
    whom = "none fits" if decision.expert is None else _name_alone(decision.expert, decision)
    by = "" if decision.expert is None else ", so the default expert"
    near = "" if decision.reason.startswith("no ") else f"; the nearest is {_text(decision.best)}, {said}"
    return f"<p><b>{whom}</b> <small>{decision.reason}{by}{near}</small></p>"


def _draw_parts(explanation: ShownExplanation) -> str:
    summary = explanation.summary
    told = f"<p>{_text(summary)}</p>" if summary else ""
    return _draw_words(explanation) + told + (_draw_table(explanation) if explanation.decision.counted else "")


def _draw_words(explanation: ShownExplanation) -> str:
    """The prompt, the colour of each word as strong as its contribution, which is also its title."""
    digits = count_digits(explanation.decision)
    strongest = max((abs(word.contribution) for word in explanation.words), default=0.0)
    parts = []
    for word in explanation.words[:MAX_WORDS]:
        share = abs(word.contribution) / strongest if strongest else 0.0
        if share < WEAK_SHARE or not word.text.strip():
            parts.append(_escape(word.text))
            continue
        text = word.text.strip()
        before, _, after = word.text.partition(text)
        colour = _find_side(word.contribution, explanation).middle
        parts.append(
            f'{_escape(before)}<span style="background:{colour}{round(255 * STRONGEST * share):02x}" '
            f'title="{format_signed(word.contribution, digits)}">{_escape(text)}</span>{_escape(after)}'
        )
    more = len(explanation.words) - MAX_WORDS
    note = f" <small>… and {more:,} more words</small>" if more > 0 else ""
    return f'<p style="white-space:pre-wrap;font-size:1.1em;line-height:1.7"><bdi>{"".join(parts)}</bdi>{note}</p>'


def _draw_table(explanation: ShownExplanation) -> str:
    """The strongest words, and what they give to each expert. The rows add up to the lead of the best one."""
    words, sums = tabulate_words(explanation, MAX_ROWS)
    digits, strongest = count_digits(explanation.decision), abs(words[0].contribution) if words else 1.0
    rows = [_draw_row(word, explanation, abs(word.contribution) / strongest, digits) for word in words]
    rows += [_draw_row(one, explanation, 0.0, digits) for one in sums]
    heads = [_name(shorten(name), colour) for name, colour in explanation.colours.items()]
    return _table(("word", "+ −", "", *heads), rows)


def _draw_row(word: WordSum, explanation: ShownExplanation, share: float, digits: int) -> tuple[str, ...]:
    times = f" <small>×{word.times:,}</small>" if word.times > 1 else ""
    signed = (format_signed(score, digits) for score in word.scores)
    drawn = _bar(share, _find_side(word.contribution, explanation)) if share else ""
    return _text(shorten(word.text)) + times, f"<b>{format_signed(word.contribution, digits)}</b>", drawn, *signed


def _find_side(contribution: float, explanation: ShownExplanation) -> Colour:
    """The colour of the expert that a word speaks for: the best one, or the next one below zero."""
    best, *others = explanation.colours.values()
    return others[0] if contribution < 0 and others else best


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of HTML; a column without a head holds bars or text."""
    top = "".join(f"<th>{head}</th>" for head in heads)
    drawn = (
        "".join(
            f"<td>{cell}</td>" if head else f'<td class="b">{cell}</td>' for head, cell in zip(heads, row, strict=True)
        )
        for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{''.join(f'<tr>{row}</tr>' for row in drawn)}</tbody></table>"


def _bar(share: float, colour: Colour) -> str:
    width = max(0.1, round(BAR_EM * min(1.0, max(0.0, share)), 1))
    style = f"display:inline-block;height:.6em;border-radius:2px;width:{width}em;background:{colour.middle}"
    return f'<i style="{style}"></i>'


def _name(expert: str, colour: Colour) -> str:
    """An expert's name after its colour."""
    return f'<span style="color:{colour.middle}">■</span> {_text(expert)}'


def _name_alone(expert: str, decision: ShownDecision) -> str:
    return _name(expert, find_colour(decision.experts.index(expert)))


def _value_name(decision: ShownDecision) -> str:
    return "confidence" if decision.expected_score is None else "expected score"


def _value(decision: ShownDecision, value: float) -> str:
    return f"{100 * value:.1f} %" if decision.expected_score is None else f"{value:.3f}"


def _frame(content: str) -> str:
    return FRAME.format(style=STYLE, content=content)


def _text(text: str) -> str:
    """Text that may be of any language, as HTML: its direction is its own."""
    return f"<bdi>{_escape(text)}</bdi>" if not text.isascii() else _escape(text)


def _escape(text: str) -> str:
    """Text as HTML. Control characters and halves of surrogate pairs have no place there."""
    return escape(_CONTROLS.sub("\ufffd", text))
