// The expert that would answer now, as the text of a button, and why it is not the one that was chosen.

import { begin, list, setText } from "./dom.js";

export function nameTarget(button, target) {
  const hasNone = target.expert === null;
  button.disabled = hasNone;
  setText(button.querySelector("span"), hasNone ? "No expert may answer" : "Send to");
  setText(button.querySelector("b"), target.expert ?? "");
}

export function explainTarget({ expert, why, reason, failing }, chosen) {
  if (expert === null) return `${begin(why)}.`;
  if (failing.length) return `${list(failing)} ${failing.length > 1 ? "fail" : "fails"} at present, so ${expert} answers.`;
  if (why === "shadow") return `The gateway is in shadow mode: ${expert} answers everything.`;
  if (why === "too dear to switch") return `A switch to ${chosen} would cost more than it gains, so ${expert} answers.`;
  if (expert === chosen || why === "abstained") return "";
  return `${chosen} cannot answer this${reason ? ` (${reason})` : ""}, so ${expert} answers.`;
}
