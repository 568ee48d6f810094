// The answer to the prompt of the playground, as it streams from the expert that the button names.

import { find, make, setText } from "./dom.js";
import { listFacts, streamAnswer } from "./stream.js";

let running = null; // the answer under way

// `getRequest` gives the prompt and the model to request, once both are known.
export function setUpAnswers(getRequest) {
  find("send").addEventListener("click", async () => {
    const request = running ? null : await getRequest();
    if (request && !running) send(request);
  });
  find("stop").addEventListener("click", () => running?.abort());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && running && !document.querySelector("dialog[open]")) running.abort();
  });
}

function setBusy(on) {
  if (!on && document.activeElement === find("stop")) find("send").focus(); // which the keyboard would lose
  find("stop").hidden = !on;
  find("send").setAttribute("aria-disabled", on);
  find("answer-text").setAttribute("aria-busy", on);
  find("answer").classList.toggle("streaming", on);
}

async function send({ content, model }) {
  const mine = (running = new AbortController());
  const text = find("answer-text");
  find("answer").hidden = false;
  find("answer-facts").replaceChildren();
  text.replaceChildren();
  setText(find("answer-state"), "Waiting for the answer…");
  setBusy(true);
  try {
    await streamAnswer({
      messages: [{ role: "user", content }],
      model,
      signal: mine.signal,
      onText(piece) {
        setText(find("answer-state"), "");
        text.append(piece);
      },
      onKnown: (known) => find("answer-facts").replaceChildren(...listFacts(known)),
    });
    setText(find("answer-state"), "");
  } catch (error) {
    if (error.name === "AbortError") setText(find("answer-state"), "Stopped.");
    else {
      setText(find("answer-state"), "");
      text.append(make("p", { class: "wrong", role: "alert" }, error.message || "The gateway cannot be reached."));
      if (error.status === 401) document.dispatchEvent(new CustomEvent("ir3de-keys-wanted", { detail: "api" }));
    }
  } finally {
    running = null;
    setBusy(false);
  }
}
