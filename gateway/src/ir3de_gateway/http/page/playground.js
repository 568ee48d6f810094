// Type a prompt and see, as you type, who would answer, and why.

import { setUpAnswers } from "./answer.js";
import { colour, compare, learn, named } from "./colors.js";
import { count, find, list, make, NONE_FITS, number, percent, setText, showNotice } from "./dom.js";
import { findExamples } from "./examples.js";
import { readOptions, setUpOptions, showOptions } from "./options.js";
import { makePreview } from "./preview.js";
import { explainTarget, nameTarget } from "./target.js";
import { showWords, visible } from "./words.js";

const WAIT_MS = 60; // without a key before the request is sent
const RANKED = 5;

const prompt = find("prompt");
let shown = { text: null, target: null }; // what the button was made for

const { look, later } = makePreview({ waitMs: WAIT_MS, winner: "winner", sure: "sure", build: buildQuestion, show });

function buildQuestion() {
  const text = prompt.value;
  const options = { explain: true, flips: true, target: true, ...readOptions() };
  return { text, body: { messages: [{ role: "user", content: text }], ...options } };
}

function show(found, text) {
  const row = found.data[0];
  learn(found.experts);
  compare(row.compared ?? []);
  find("winner-swatch").style.setProperty("--colour", row.expert === null ? "var(--line)" : colour(row.expert));
  setText(find("winner"), row.expert ?? NONE_FITS);
  setText(find("sure"), describeSureness(row, found));
  setText(find("cost-of-it"), `${row.counted} of ${count(row.tokens, "token")} decided, in ${microseconds(found.route_us)}`);
  showOptions(found.options, row.tokens);
  showTarget(row, text);
  showRanking(row);
  showWords(row, row.flips, text);
  setText(find("spoken"), row.tokens ? (row.summary ?? "") : "");
  showFlips(row);
  showLegend(row.compared);
  showExamples(found.router);
  document.documentElement.dataset.ready = text; // for tests that wait for it
}

// The button names the expert that will answer, which need not be the one that was chosen.
function showTarget(row, text) {
  shown = { text, target: row.target };
  nameTarget(find("send"), row.target);
  const why = explainTarget(row.target, row.expert ?? row.ranking[0]?.expert);
  find("target-note").hidden = !why;
  setText(find("target-note"), why);
}

const microseconds = (value) => (value < 1000 ? `${Math.round(value)} µs` : `${(value / 1000).toFixed(1)} ms`);

function describeSureness(row, found) {
  if (row.abstained) return explainAbstention(row);
  if (row.expected_score !== undefined) return `expected score ${row.expected_score.toFixed(2)}`;
  const votes = (readOptions().selector || found.options.selector) !== "average";
  const words = `${percent(row.confidence)} ${found.calibrated ? "confidence" : votes ? "of the votes" : "of the score"}`;
  const asked = row.consulted ? ", the encoder was asked" : "";
  return row.out_of_domain ? `${words}${asked}, out of domain` : `${words}${asked}`;
}

function explainAbstention(row) {
  const reasons = {
    "no known token": "no known word",
    "low confidence": `a confidence of ${percent(row.confidence)} is too low`,
    "low expected score": `an expected score of ${row.expected_score?.toFixed(2)} is too low`,
    "out of domain": "the prompt is out of domain",
    "no content": "the prompt has no content of its own",
  };
  const why = reasons[row.reason] || "the router abstains";
  const likely = row.in_domain === null ? "" : `; ${percent(row.in_domain)} likely to be in domain`;
  if (row.expert !== null) return `default expert: ${why}${likely}`;
  return `${why}${likely}; the nearest expert is ${row.ranking[0].expert}`;
}

function showRanking(row) {
  const place = find("ranking");
  const present = new Map([...place.children].map((item) => [item.dataset.expert, item]));
  const ranked = row.ranking.slice(0, RANKED);
  const largest = Math.max(1, ...ranked.map((one) => one.expected_score ?? 0)); // expected scores may be larger than 1
  ranked.forEach(({ expert, probability, expected_score }, index) => {
    let item = present.get(expert);
    if (!item) {
      const track = make("span", { class: "track" }, make("i"));
      item = make("li", { "data-expert": expert }, make("span", { class: "name" }, expert), track, make("span", { class: "value" }));
      place.append(item);
    }
    present.delete(expert);
    item.style.setProperty("--colour", colour(expert));
    item.style.setProperty("--share", Math.max(0, (probability ?? expected_score) / largest));
    item.style.setProperty("--row", index);
    item.classList.toggle("first", expert === row.expert);
    setText(item.querySelector(".value"), probability === undefined ? expected_score.toFixed(2) : percent(probability));
  });
  for (const gone of present.values()) gone.remove();
  const more = row.ranking.length - ranked.length;
  showNotice(find("ranked-more"), more ? `… and ${number(more)} more` : "");
  place.style.setProperty("--rows", ranked.length);
  const sorted = [...place.children].sort((one, other) => one.style.getPropertyValue("--row") - other.style.getPropertyValue("--row"));
  const move = place.moveBefore || place.insertBefore; // the former lets a row glide to its place
  sorted.forEach((item, index) => item !== place.children[index] && move.call(place, item, place.children[index]));
}

function showFlips(row) {
  const quoted = (index) => make("b", {}, `“${visible(row.words[index].text)}”`);
  const { alone, together } = row.flips ?? { alone: [], together: null };
  const parts = [];
  if (alone.length) {
    const first = alone.find((one) => one.place === together.places[0]);
    parts.push("Without ", quoted(first.place), ...wouldGo(first.expert), ".");
    const others = alone.filter((one) => one !== first);
    if (others.length === 1) parts.push(" Without ", quoted(others[0].place), ...wouldGo(others[0].expert), ".");
    if (others.length > 1) parts.push(` Each of the ${alone.length} underlined words alone would change the decision.`);
  } else if (together) {
    const { places, expert } = together;
    if (places.length > 4) parts.push(`Only without all ${places.length} underlined words`);
    else parts.push("Only without ", ...joinParts(places.map(quoted)), " together");
    parts.push(...(expert === null ? [" would none fit."] : [" would this go to ", named(expert), "."]));
  } else if (row.tokens) {
    parts.push("No few words would change this decision.");
  }
  find("flip").replaceChildren(...parts);
}

const wouldGo = (expert) => (expert === null ? [" none would fit"] : [" this would go to ", named(expert)]);

const joinParts = (parts) => parts.flatMap((part, index) => (index ? [index === parts.length - 1 ? " and " : ", ", part] : [part]));

function showLegend([best, next] = []) {
  const entries = [[best, "+"], [next, "−"]].filter(([name]) => name !== undefined);
  find("legend").replaceChildren(...entries.map(([name, sign]) => make("li", {}, named(name), make("span", { class: "quiet" }, ` ${sign}`))));
}

// examples -----------------------------------------------------------------------------------------------------------

async function showExamples(router) {
  const place = find("examples");
  if (place.dataset.router === router) return;
  place.dataset.router = router;
  try {
    offer(await findExamples(router));
  } catch {
    place.dataset.router = ""; // there will be another time
  }
}

function offer(examples) {
  const chips = examples.map(({ text, experts }) => {
    const click = () => {
      prompt.value = text;
      look();
    };
    const label = `${experts.length > 1 ? "Between " : "For "}${list(experts)}: ${text}`;
    return make("button", { class: "chip", type: "button", title: text, "aria-label": label, on: { click } }, ...joinParts(experts.map((name) => named(name))));
  });
  find("examples").replaceChildren(...chips);
}

async function beginWithAnExample() {
  if (prompt.value) return;
  const first = (await findExamples().catch(() => []))[0]?.text ?? "";
  if (prompt.value || !first || document.activeElement === prompt) return; // somebody is about to type
  prompt.value = first;
  prompt.addEventListener("focus", () => prompt.value === first && prompt.select(), { once: true });
}

// ----------------------------------------------------------------------------------------------------------------------

// What the button sends: never what it was not made for.
async function getRequest() {
  if (!prompt.value.trim()) return null;
  if (shown.text !== prompt.value) await look();
  const { text, target } = shown;
  return text === prompt.value && target?.expert ? { content: text, model: target.model } : null;
}

function setUp() {
  prompt.addEventListener("input", later);
  prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) find("send").click();
  });
  setUpOptions(later);
  setUpAnswers(getRequest);
}

setUp();
const begun = beginWithAnExample();

export const playground = {
  async show() {
    await begun;
    look();
  },
};
