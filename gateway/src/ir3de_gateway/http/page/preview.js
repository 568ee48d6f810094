// The expert that would answer, while the user types: a request follows a moment after the last key, and the last one wins.

import { requestJSON } from "./api.js";
import { find, setText } from "./dom.js";

// `build` gives {text, body} of the question, or null where there is none; `show` gets the answer and the text. What
// goes wrong is shown in place of the winner and its confidence.
export function makePreview({ waitMs, winner, sure, build, show }) {
  let pending = null; // the request under way
  let timer = 0;

  async function look() {
    clearTimeout(timer);
    pending?.abort();
    const mine = (pending = new AbortController());
    const question = build();
    if (!question) return;
    try {
      const found = await requestJSON("v1/route", { method: "POST", body: question.body, signal: mine.signal });
      if (mine === pending) show(found, question.text);
    } catch (error) {
      if (error.name === "AbortError" || mine !== pending) return;
      setText(find(winner), "…");
      setText(find(sure), error.message);
      if (error.status === 401) document.dispatchEvent(new CustomEvent("ir3de-keys-wanted", { detail: "api" }));
    }
  }

  function later() {
    clearTimeout(timer);
    timer = setTimeout(look, waitMs);
  }

  return { look, later };
}
