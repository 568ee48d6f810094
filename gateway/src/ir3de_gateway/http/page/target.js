// The expert that the gateway would ask now, as a button says it, and why it is not the one that was chosen.

import { begin, list, say } from "./dom.js";

export function nameTarget(button, target) {
  const nobody = target.expert === null;
  button.disabled = nobody;
  say(button.querySelector("span"), nobody ? "Nobody may answer" : "Send to");
  say(button.querySelector("b"), target.expert ?? "");
}

export function explainTarget({ expert, why, reason, failing }, chosen) {
  if (expert === null) return `${begin(why)}.`;
  if (failing.length) return `${list(failing)} ${failing.length > 1 ? "fail" : "fails"} at present, so ${expert} is asked.`;
  if (why === "shadow") return `The gateway is in shadow mode: ${expert} answers everything.`;
  if (expert === chosen || why === "abstained") return "";
  return `${chosen} cannot answer this${reason ? ` (${reason})` : ""}, so ${expert} is asked.`;
}
