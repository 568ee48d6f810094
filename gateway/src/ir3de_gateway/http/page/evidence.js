// Why a turn of a conversation goes where it goes: a sentence, and a bar for each turn that has a part in it.

import { colour } from "./colors.js";
import { make, NONE_FITS, percent } from "./dom.js";

const REASONS = { routed: "by its own words", stayed: "stayed", "new subject": "new subject", moved: "moved" };
const LEAST_SHOWN = 0.005; // of the weight: less gets no bar

// In a few words, for the thread.
export function nameReason(turn) {
  if (turn.abstained) return turn.reason || "abstained";
  const sure = Number.isFinite(turn.confidence) ? `${percent(turn.confidence)} · ` : "";
  return sure + (turn.why === "stayed" ? `stayed: turn ${turn.decided + 1} decides` : (REASONS[turn.why] ?? turn.why));
}

export function describeSureness(row, isCalibrated) {
  if (row.expected_score !== undefined) return `expected score ${row.expected_score.toFixed(2)}`;
  const words = `${percent(row.confidence)} ${isCalibrated ? "confidence" : "of the score"}`;
  return row.abstained ? `${row.reason || "the router abstains"}, ${words}` : words;
}

// In a sentence. Turns are counted from 1, as people count.
export function explainTurn(turn) {
  const expert = turn.expert ?? turn.best ?? NONE_FITS;
  if (turn.abstained) return `The router abstains: ${turn.reason || "it is not sure enough"}. The nearest expert is ${turn.best ?? expert}.`;
  const sentences = {
    routed: "Its own words decide.",
    stayed: `It stays with ${expert}: of all turns, turn ${turn.decided + 1} is the strongest sign of it.`,
    "new subject": `It begins a new subject, so the turns before no longer count.`,
    moved: `All turns together now point to ${expert}; turn ${turn.decided + 1} most of all.`,
  };
  return sentences[turn.why] ?? "";
}

// `turns` has the rows of all turns, where they are known: each bar has the colour of its turn's own expert.
export function drawEvidence(turn, turns = []) {
  const rows = turn.weights.filter((one) => one.weight >= LEAST_SHOWN || one.turn === turn.turn);
  const items = rows.map((one) => {
    const row = turns[one.turn] ?? (one.turn === turn.turn ? turn : null);
    const vars = { "--share": one.weight, "--colour": row?.expert ? colour(row.expert) : "var(--column)" };
    const label = one.turn === turn.turn ? `Turn ${one.turn + 1}, this one` : `Turn ${one.turn + 1}`;
    return make(
      "li",
      { class: one.turn === turn.decided ? "decides" : "" },
      make("span", { class: "name" }, label),
      make("span", { class: "value" }, percent(one.weight)),
      make("span", { class: "track", vars }, make("i")),
      row?.text ? make("span", { class: "quote" }, row.text) : null,
    );
  });
  return make("ol", { class: "evidence", "aria-label": "Share of each turn in the words that count" }, ...items);
}
