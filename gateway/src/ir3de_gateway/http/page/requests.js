// The latest routed requests of the journal, each with the feedback on it, which admins give and change here.

import { requestJSON } from "./api.js";
import { find, make, setText } from "./dom.js";
import { showRefusal, showUnlocked } from "./locked.js";
import { describeFeedback, makeRating, takesFeedback } from "./rating.js";
import { listFacts } from "./stream.js";

const AT_ONCE = 50;
const BRIEF_CHARS = 300; // of a prompt; the rest is folded

let older = null; // where the requests before those that are shown begin
let shown = new Set(); // their ids
let isBusy = false;

export async function showRequests() {
  find("requests").hidden = !(await takesFeedback());
  if (!find("requests").hidden) look();
}

async function look(before = null) {
  if (isBusy) return;
  isBusy = true;
  try {
    const found = await requestJSON(`admin/requests?limit=${AT_ONCE}${before ? `&before=${before}` : ""}`);
    const place = find("request-list");
    if (!before) {
      place.replaceChildren();
      shown = new Set();
    }
    const items = found.data.map((one) => makeItem(one, found));
    place.append(...items);
    if (before) items[0]?.focus({ preventScroll: true }); // the keyboard goes on where the list did
    older = found.older;
    find("requests-older").hidden = !older;
    setText(find("requests-note"), describeKept(found, place.children.length));
    showUnlocked("requests");
  } catch (error) {
    showRefusal("requests", error);
  } finally {
    isBusy = false;
  }
}

function describeKept({ keep }, many) {
  if (!many) return "No request was routed yet.";
  return keep === "text" ? "" : `This gateway keeps the ${keep} of prompts, not their text (feedback.keep).`;
}

function makeItem(one, { author, experts }) {
  const own = one.feedback.find((given) => given.author === author);
  const others = one.feedback.filter((given) => given !== own);
  const isReachable = !shown.has(one.request_id); // feedback reaches the last request of an id, and clients may choose ids
  shown.add(one.request_id);
  const known = { expert: one.served, decided: one.decided, confidence: one.confidence, score: one.expected_score, total: one.seconds === null ? undefined : one.seconds * 1000 };
  const reason = one.why === "routed" ? "the router decided" : one.why;
  const facts = [row("Time", formatTime(one.time)), row("Key", one.key || "none"), ...listFacts({ ...known, tokens: one.completion_tokens, why: reason })];
  if (one.cost !== null) facts.push(row("Cost", one.cost.toFixed(one.cost < 1 ? 6 : 2)));
  if (one.status >= 400) facts.push(row("Status", String(one.status)));
  return make(
    "li",
    { tabindex: "-1", "data-request": one.request_id },
    one.text === null ? null : makeText(one.text, one.turns),
    make("dl", { class: "facts" }, ...facts),
    others.length ? make("ul", { class: "given", "aria-label": "Feedback of others" }, ...others.map((given) => make("li", { class: "quiet" }, `${given.author}: ${describeFeedback(given)}`))) : null,
    isReachable ? makeRating(one.request_id, one.served, experts, { given: own && { score: own.score ?? undefined, expert: own.expert ?? undefined, comment: own.comment || undefined }, asAdmin: true }) : make("p", { class: "quiet" }, "A later request has the same id, so feedback would go to that one."),
  );
}

function makeText(text, turns) {
  const before = turns > 1 ? make("span", { class: "quiet" }, `turn ${turns}: `) : null;
  const characters = [...text];
  if (characters.length <= BRIEF_CHARS) return make("p", { class: "prompt" }, before, text);
  return make("details", { class: "prompt" }, make("summary", {}, before, `${characters.slice(0, BRIEF_CHARS).join("")}…`), text);
}

const row = (name, value) => make("div", {}, make("dt", {}, name), make("dd", {}, value));

function formatTime(seconds) {
  const time = new Date(seconds * 1000);
  return Number.isNaN(time.getTime()) ? "–" : `${time.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

find("requests-older").addEventListener("click", () => look(older));
find("requests-again").addEventListener("click", () => look());
