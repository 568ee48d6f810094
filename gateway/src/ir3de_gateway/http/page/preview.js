// Who would answer, while somebody types: the gateway is asked a moment after the last key, and the last question wins.

import { askJSON } from "./api.js";
import { find, say } from "./dom.js";

// `build` gives {text, body} of the question, or null where there is none; `show` gets the answer and the text. What
// goes wrong is told where the winner and how sure it is would stand.
export function makePreview({ waitMs, winner, sure, build, show }) {
  let asking = null; // the request under way
  let timer = 0;

  async function look() {
    clearTimeout(timer);
    asking?.abort();
    const mine = (asking = new AbortController());
    const question = build();
    if (!question) return;
    try {
      const found = await askJSON("v1/route", { method: "POST", body: question.body, signal: mine.signal });
      if (mine === asking) show(found, question.text);
    } catch (error) {
      if (error.name === "AbortError" || mine !== asking) return;
      say(find(winner), "…");
      say(find(sure), error.message);
      if (error.status === 401) document.dispatchEvent(new CustomEvent("ir3de-keys-wanted", { detail: "api" }));
    }
  }

  function later() {
    clearTimeout(timer);
    timer = setTimeout(look, waitMs);
  }

  return { look, later };
}
