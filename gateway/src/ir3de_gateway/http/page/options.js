// Other scorers and selectors to try. They change what the page shows, and which expert its button names; clients see none of it.

import { count, find, make, setText } from "./dom.js";

const SELECTORS = {
  average: ["Average", "The mean score of all tokens decides."],
  all: ["All", "Every token has a vote."],
  entropy: ["Entropy", "The tokens of lowest entropy have a vote. A token is a word, or a piece of a long one."],
};
const MOST_TOKENS = 64; // that the slider offers

const chosen = { selector: null, scorer: null, k: null };
let served = null; // how the gateway itself reads
let length = 0; // of the prompt, in tokens

// What differs from the router as it is served, as fields of a request.
export const readOptions = () => Object.fromEntries(Object.entries(chosen).filter(([, value]) => value !== null));

export function showOptions(options, tokens) {
  const isNew = JSON.stringify(options) !== JSON.stringify(served);
  served = options;
  if (isNew) drawOptions();
  length = tokens;
  limitSlider();
  reflect();
}

function drawOptions() {
  const field = find("selectors");
  field.replaceChildren(field.firstElementChild);
  for (const name of served.selectors) {
    const [label, title] = SELECTORS[name] || [name, ""];
    const input = make("input", { type: "radio", name: "selector", value: name, id: `selector-${name}`, on: { change: choose } });
    input.checked = name === (chosen.selector || served.selector);
    field.append(make("label", { title, for: `selector-${name}` }, input, make("span", {}, label)));
  }
  const scorers = served.scorers.includes(served.scorer) ? served.scorers : [served.scorer, ...served.scorers];
  find("scorer").replaceChildren(...scorers.map((name) => make("option", { value: name }, name)));
  find("scorer").value = chosen.scorer || served.scorer;
  find("scorer-field").hidden = served.scorers.length < 2;
  find("reading").hidden = served.selectors.length < 2 && served.scorers.length < 2;
}

// No more tokens can vote than the prompt has. What was chosen is kept for longer prompts.
function limitSlider() {
  const slider = find("k");
  slider.max = Math.min(MOST_TOKENS, Math.max(1, length));
  slider.value = Math.min(chosen.k ?? served.k, slider.max);
  slider.disabled = length < 2;
  const text = length ? `${slider.value} of ${count(length, "token")}` : "none";
  setText(find("k-shown"), text);
  slider.setAttribute("aria-valuetext", text);
}

function choose() {
  const selector = document.querySelector("[name=selector]:checked")?.value || served.selector;
  const scorer = find("scorer").value || served.scorer;
  chosen.selector = selector === served.selector ? null : selector;
  chosen.scorer = scorer === served.scorer ? null : scorer;
  if (selector !== "entropy") chosen.k = null;
  reflect();
  document.dispatchEvent(new CustomEvent("ir3de-options"));
}

function chooseNumber() {
  chosen.k = Number(find("k").value);
  limitSlider();
  choose();
}

function reflect() {
  const selector = chosen.selector || served.selector;
  find("k-field").hidden = selector !== "entropy";
  const about = SELECTORS[selector]?.[1] ?? "";
  const isServed = !chosen.selector && !chosen.scorer && (chosen.k === null || chosen.k === served.k);
  const own = `${(SELECTORS[served.selector] || [served.selector])[0].toLowerCase()}, ${served.scorer}`;
  const trial = `A trial: the button sends to the expert shown here by its name. Requests of clients are read as the router is served (${own}).`;
  setText(find("reading-note"), isServed ? about : trial);
}

export function setUpOptions(onChange) {
  find("k").addEventListener("input", chooseNumber);
  find("scorer").addEventListener("change", choose);
  document.addEventListener("ir3de-options", onChange);
}
