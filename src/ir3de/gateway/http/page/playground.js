// Type a prompt and see, as you type, who would answer, and why.

import { askJSON } from "./api.js";
import { answers } from "./answer.js";
import { colour, learn, named } from "./colors.js";
import { find, make, NONE_FITS, percent, say } from "./dom.js";
import { showWords, visible } from "./words.js";

const EXAMPLES = [
  ["Lawyers in Rome", "How did lawyers in ancient Rome prove that a will was forged?"],
  ["A broken leg", "The tenant stopped paying rent after breaking a leg: may the landlord terminate the lease?"],
  ["√2", "Prove that √2 is irrational."],
  ["Largest orders", "Write a SQL query for the ten largest orders of each customer."],
  ["Function or theorem", "Write a function that proves a theorem"],
  ["Fever", "Why does a fever rise in the evening, and when should I call a doctor?"],
];
const SELECTORS = {
  average: ["Average", "The mean score of all tokens decides"],
  all: ["All", "Every token has a vote"],
  entropy: ["Entropy", "The tokens of lowest entropy have a vote"],
};
const WAIT = 60; // milliseconds without a key before the gateway is asked
const RANKED = 12;

const prompt = find("prompt");
const reading = { selector: null, scorer: null, k: null };
let served = null; // how the gateway itself reads
let asking = null; // the request under way: the last one wins
let timer = 0;

function later() {
  clearTimeout(timer);
  timer = setTimeout(look, WAIT);
}

async function look() {
  asking?.abort();
  const mine = (asking = new AbortController());
  const body = { input: prompt.value, explain: true, flips: true };
  for (const [name, value] of Object.entries(reading)) if (value !== null) body[name] = value;
  try {
    const found = await askJSON("v1/route", { method: "POST", body, signal: mine.signal });
    if (mine === asking) show(found, body.input);
  } catch (error) {
    if (error.name === "AbortError" || mine !== asking) return;
    say(find("winner"), "…");
    say(find("sure"), error.message);
    if (error.status === 401) document.dispatchEvent(new CustomEvent("ir3de-keys-wanted", { detail: "api" }));
  }
}

function show(found, text) {
  const row = found.data[0];
  learn(found.experts);
  find("winner-swatch").style.setProperty("--colour", row.expert === null ? "var(--line)" : colour(row.expert));
  say(find("winner"), row.expert ?? NONE_FITS);
  say(find("sure"), sentence(row, found));
  say(find("send-to"), row.expert ?? row.ranking[0].expert); // somebody must answer: the nearest expert
  say(find("cost-of-it"), `${row.counted} of ${row.tokens} tokens decided, in ${microseconds(found.route_us)}`);
  showRanking(row);
  showWords(row, row.flips, text);
  showFlips(row);
  showLegend(row.compared);
  showOptions(found.options);
  document.documentElement.dataset.ready = text; // for whoever waits for it, such as a test
}

const microseconds = (value) => (value < 1000 ? `${Math.round(value)} µs` : `${(value / 1000).toFixed(1)} ms`);

function sentence(row, found) {
  if (row.abstained) return whyAbstained(row);
  if (row.expected_score !== undefined) return `expected score ${row.expected_score.toFixed(2)}`;
  const votes = (reading.selector || found.options.selector) !== "average";
  const words = `${percent(row.confidence)} ${found.calibrated ? "confidence" : votes ? "of the votes" : "of the score"}`;
  return row.out_of_domain ? `${words}, out of domain` : words;
}

function whyAbstained(row) {
  const reasons = {
    "no known token": "no known token",
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
  const list = find("ranking");
  const present = new Map([...list.children].map((item) => [item.dataset.expert, item]));
  const shown = row.ranking.slice(0, RANKED);
  const largest = Math.max(1, ...shown.map((one) => one.expected_score ?? 0)); // expected scores may be larger than 1
  shown.forEach(({ expert, probability, expected_score }, index) => {
    let item = present.get(expert);
    if (!item) {
      const track = make("span", { class: "track" }, make("i"));
      item = make("li", { "data-expert": expert }, make("span", { class: "name" }, expert), track, make("span", { class: "value" }));
      list.append(item);
    }
    present.delete(expert);
    item.style.setProperty("--colour", colour(expert));
    item.style.setProperty("--share", Math.max(0, (probability ?? expected_score) / largest));
    item.style.setProperty("--row", index);
    item.classList.toggle("first", expert === row.expert);
    say(item.querySelector(".value"), probability === undefined ? expected_score.toFixed(2) : percent(probability));
  });
  for (const gone of present.values()) gone.remove();
  list.style.setProperty("--rows", shown.length);
  const ranked = [...list.children].sort((one, other) => one.style.getPropertyValue("--row") - other.style.getPropertyValue("--row"));
  const move = list.moveBefore || list.insertBefore; // the former lets a row glide to its place
  ranked.forEach((item, index) => item !== list.children[index] && move.call(list, item, list.children[index]));
}

function showFlips(row) {
  const quoted = (index) => make("b", {}, `“${visible(row.words[index].text)}”`);
  const { alone, together } = row.flips;
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
    else parts.push("Only without ", ...listedParts(places.map(quoted)), " together");
    parts.push(...(expert === null ? [" would none fit."] : [" would this go to ", named(expert), "."]));
  } else if (row.tokens) {
    parts.push("No few words would change this decision.");
  }
  find("flip").replaceChildren(...parts);
}

const wouldGo = (expert) => (expert === null ? [" none would fit"] : [" this would go to ", named(expert)]);

const listedParts = (parts) => parts.flatMap((part, index) => (index ? [index === parts.length - 1 ? " and " : ", ", part] : [part]));

function showLegend([best, next]) {
  const entries = [[best, "+"], ...(next === undefined ? [] : [[next, "−"]])];
  find("legend").replaceChildren(...entries.map(([name, sign]) => make("li", {}, named(name), make("span", { class: "quiet" }, ` ${sign}`))));
}

function showOptions(options) {
  const known = JSON.stringify(options);
  if (served === known) return;
  served = known;
  const chosen = reading.selector || options.selector;
  const field = find("selectors");
  field.replaceChildren(field.firstElementChild);
  for (const name of options.selectors) {
    const [label, title] = SELECTORS[name] || [name, ""];
    const input = make("input", { type: "radio", name: "selector", value: name, id: `selector-${name}`, on: { change: choose } });
    input.checked = name === chosen;
    field.append(make("label", { title, for: `selector-${name}` }, input, make("span", {}, label)));
  }
  if (reading.k === null) find("k").value = options.k;
  const scorers = options.scorers.includes(options.scorer) ? options.scorers : [options.scorer, ...options.scorers];
  find("scorer").replaceChildren(...scorers.map((name) => make("option", { value: name }, name)));
  find("scorer").value = reading.scorer || options.scorer;
  find("scorer-field").hidden = options.scorers.length < 2;
  find("reading").hidden = options.selectors.length < 2 && options.scorers.length < 2;
  reflect();
}

function choose() {
  const options = JSON.parse(served);
  const selector = document.querySelector("[name=selector]:checked")?.value || options.selector;
  const scorer = find("scorer").value || options.scorer;
  reading.selector = selector === options.selector ? null : selector;
  reading.scorer = scorer === options.scorer ? null : scorer;
  reading.k = selector === "entropy" ? Number(find("k").value) : null;
  reflect();
  later();
}

function reflect() {
  const options = JSON.parse(served);
  const selector = reading.selector || options.selector;
  say(find("k-shown"), find("k").value);
  find("k-field").hidden = selector !== "entropy";
  const own = `${(SELECTORS[options.selector] || [options.selector])[0].toLowerCase()}, ${options.scorer}`;
  const same = !reading.selector && !reading.scorer && (reading.k === null || reading.k === options.k);
  const trying = `For trying out only: requests use the router as it is served (${own}).`;
  say(find("reading-note"), same ? SELECTORS[selector]?.[1] || "" : trying);
}

function setUp() {
  prompt.value = EXAMPLES[0][1];
  prompt.addEventListener("focus", () => prompt.value === EXAMPLES[0][1] && prompt.select(), { once: true });
  prompt.addEventListener("input", later);
  prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) find("send").click();
  });
  find("k").addEventListener("input", choose);
  find("scorer").addEventListener("change", choose);
  find("examples").append(
    ...EXAMPLES.map(([label, text]) =>
      make("button", { class: "chip", type: "button", title: text, on: { click: () => ((prompt.value = text), look()) } }, label),
    ),
  );
  answers(() => prompt.value);
}

setUp();

export const playground = { show: look };
