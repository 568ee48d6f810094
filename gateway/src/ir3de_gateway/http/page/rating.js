// What people think of an answer: two thumbs, and the expert that should have answered. It can be changed and taken back.

import { explainError, request, requestJSON } from "./api.js";
import { make, setText } from "./dom.js";

let known = null;

// Whether the gateway keeps feedback; asked once.
export const takesFeedback = () => (known ??= requestJSON("version").then((found) => Boolean(found.feedback), () => false));

// Buttons for one answer. `experts` are the names to choose from, `served` is the one that answered.
export function makeRating(requestId, served, experts) {
  let given = {};
  const state = make("span", { class: "quiet", role: "status" });
  const thumb = (value, label, sign) =>
    make("button", { class: "button small thumb", type: "button", "data-thumb": value, "aria-pressed": "false", "aria-label": label, title: label, on: { click: () => put("thumb", value) } }, sign);
  const thumbs = [thumb("up", "Good answer", "👍"), thumb("down", "Bad answer", "👎")];
  const options = ["", ...experts.filter((name) => name !== served)].map((name) => make("option", { value: name }, name || "should have been …"));
  const choice = make("select", { "aria-label": "The expert that should have answered", on: { change: () => put("expert", choice.value) } }, ...options);
  const back = make("button", { class: "link", type: "button", hidden: true, on: { click: () => send({}) } }, "take back");

  // The same thumb again takes it away.
  function put(name, value) {
    const next = { ...given, [name]: given[name] === value ? "" : value };
    send(Object.fromEntries(Object.entries(next).filter(([, one]) => one)));
  }

  async function send(next) {
    try {
      if (Object.keys(next).length) await request("v1/feedback", { method: "POST", body: { request_id: requestId, ...next } });
      else await request(`v1/feedback/${encodeURIComponent(requestId)}`, { method: "DELETE" });
      given = next;
      setText(state, describe(given));
    } catch (error) {
      setText(state, explainError(error));
    }
    for (const one of thumbs) one.setAttribute("aria-pressed", one.dataset.thumb === given.thumb);
    choice.value = given.expert ?? "";
    back.hidden = !Object.keys(given).length;
  }

  return make("div", { class: "rating", role: "group", "aria-label": "Feedback on this answer" }, ...thumbs, choice, state, back);
}

function describe({ thumb, expert }) {
  const parts = [thumb && (thumb === "up" ? "good" : "bad"), expert && `should have been ${expert}`].filter(Boolean);
  return parts.length ? `Sent: ${parts.join(", ")}.` : "Taken back.";
}
