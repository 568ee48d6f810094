// What people think of an answer: two thumbs, the expert that should have answered, a comment. It can be changed and taken back.

import { explainError, request, requestJSON } from "./api.js";
import { make, setText } from "./dom.js";

const MAX_COMMENT_CHARS = 2_000;

let known = null;

// Whether the gateway keeps feedback; asked until it was answered.
export const takesFeedback = () =>
  (known ??= requestJSON("version").then(
    (found) => Boolean(found.feedback),
    () => Boolean((known = null)),
  ));

const has = ({ score, expert }) => Number.isFinite(score) || Boolean(expert); // a comment alone is no feedback

// Buttons for one answer. `experts` are the names to choose from, `served` is the one that answered, if any did.
// `given` is the caller's feedback so far; `asAdmin` sends the admin token instead of the API key.
export function makeRating(requestId, served, experts, { given = {}, asAdmin = false } = {}) {
  let last = Promise.resolve();
  const state = make("span", { class: "quiet", role: "status" });
  const thumb = (score, label, sign) =>
    make("button", { class: "button small thumb", type: "button", "data-thumb": score ? "up" : "down", "aria-label": label, title: label, on: { click: () => put("score", score, true) } }, sign);
  const thumbs = served ? [thumb(1, "Good answer", "👍"), thumb(0, "Bad answer", "👎")] : [];
  const names = new Set(["", ...experts.filter((name) => name !== served), given.expert ?? ""]);
  const options = [...names].map((name) => make("option", { value: name }, name || "should have been …"));
  const choice = make("select", { "aria-label": "The expert that should have answered", on: { change: () => put("expert", choice.value) } }, ...options);
  const comment = make("input", { "aria-label": "Comment", placeholder: "Comment, if you like", maxlength: MAX_COMMENT_CHARS, autocomplete: "off", on: { change: () => put("comment", comment.value.trim()) } });
  const back = make("button", { class: "link", type: "button", on: { click: () => change(() => ({})) } }, "take back");

  // The same thumb again takes it away.
  const put = (name, value, isToggled = false) => change((now) => ({ ...now, [name]: (isToggled && now[name] === value) || value === "" ? undefined : value }));

  // One change at a time: each begins with what the one before left.
  const change = (next) => (last = last.then(() => send(next(given))));

  async function send({ score, expert, comment: words }) {
    const next = has({ score, expert }) ? { score, expert, comment: words } : {};
    try {
      if (has(next)) await request("v1/feedback", { method: "POST", body: { request_id: requestId, ...next }, asAdmin });
      else await request(`v1/feedback/${encodeURIComponent(requestId)}`, { method: "DELETE", asAdmin });
      given = next;
      comment.value = given.comment ?? "";
      show(has(given) ? `Sent: ${describeFeedback(given)}.` : "Taken back.");
    } catch (error) {
      show(explainError(error)); // what was typed stays
    }
  }

  function show(text) {
    setText(state, text);
    for (const one of thumbs) one.setAttribute("aria-pressed", given.score === (one.dataset.thumb === "up" ? 1 : 0));
    choice.value = given.expert ?? "";
    comment.hidden = back.hidden = !has(given);
  }

  comment.value = given.comment ?? "";
  show(has(given) ? `Sent: ${describeFeedback(given)}.` : "");
  return make("div", { class: "rating", role: "group", "aria-label": "Feedback on this answer" }, ...thumbs, choice, comment, state, back);
}

// In words: what an author thinks of an answer.
export function describeFeedback({ score, expert, comment }) {
  const quality = { 1: "good", 0: "bad" }[score] ?? (Number.isFinite(score) ? `score ${score}` : null);
  return [quality, expert && `should have been ${expert}`, comment && `“${comment}”`].filter(Boolean).join(", ");
}
