// A prompt's words, each in the colour of the expert it is a sign of; what one gives to each expert, in a bubble.

import { colour, named } from "./colors.js";
import { count, draw, find, make, NONE_FITS } from "./dom.js";

const STRONGEST = 0.93; // the share of the full colour that the word of the largest contribution gets

const place = find("words");
const bubble = find("bubble");
let words = [];
let compared = []; // the best expert, the next one, and a few more
let current = 0;

export const visible = (text) => text.trim() || text.replaceAll("\n", "⏎").replaceAll(" ", "␣") || "·";

let digits = 2; // of contributions, after the point

// As in terminals and notebooks: a number that is rounded to zero is none.
const signed = (value) => {
  const text = value.toFixed(digits);
  return Number(text) === 0 ? "·" : (value > 0 ? "+" : "") + text.replace("-", "−");
};

// The expert that a word is a sign of: the best one, or the next one where its contribution is below zero.
const choose = (word, [best, next]) => (word.contribution < 0 && next !== undefined ? next : best);
const side = (word) => choose(word, compared);
const split = (text) => {
  const word = text.trim();
  const start = word ? text.indexOf(word) : text.length;
  return [text.slice(0, start), word, text.slice(start + word.length)];
};

// The words as plain text in their colours, to be read and not to be walked.
export function paintWords(row) {
  const strongest = Math.max(...row.words.map((word) => Math.abs(word.contribution)), 1e-9);
  return row.words.flatMap((word) => {
    const [before, text, after] = split(word.text);
    const share = word.counted ? Math.abs(word.contribution) / strongest : 0;
    const vars = { "--colour": colour(choose(word, row.compared)), "--strength": (STRONGEST * share).toFixed(3) };
    return [before, text && make("span", { class: "word", vars }, text), after].filter(Boolean);
  });
}

export function showWords(row, flips, text) {
  ({ words, compared } = row);
  digits = row.expected_score === undefined ? 2 : 3; // expected scores are small
  current = Math.min(current, Math.max(0, words.length - 1));
  const alone = new Map((flips?.alone || []).map((one) => [one.place, one.expert ?? NONE_FITS]));
  const together = new Set(flips?.together?.places || []);
  const strongest = Math.max(...words.map((word) => Math.abs(word.contribution)), 1e-9);
  hideBubble();
  const made = words.flatMap((word, index) => element(word, index, strongest, alone.get(index), together.has(index)));
  const read = words.reduce((length, word) => length + word.text.length, 0);
  if (words.length && read < text.length) made.push(make("span", { class: "beyond" }, ` and more, which is not read: ${count(words.length, "word")} are`));
  place.replaceChildren(...made);
  place.classList.toggle("empty", !made.length);
}

// The word as an element, and before it the space that it begins with, which has no colour.
function element(word, index, strongest, other, together) {
  const [before, text, rest] = split(word.text);
  const after = text ? rest : word.text.replace(/[^\n]/g, "");
  const parts = [visible(word.text), word.counted ? `${signed(word.contribution)}, a sign of ${side(word)}` : "not counted"];
  if (other) parts.push(`without it ${other}`);
  const kinds = ["word", !word.counted && "filtered", other && "alone", together && "together", !text && "space"];
  const share = Math.abs(word.contribution) / strongest;
  const made = make(
    "span",
    {
      class: kinds.filter(Boolean).join(" "),
      role: "option",
      "aria-selected": "false",
      "aria-label": parts.join(", "),
      tabindex: index === current ? "0" : "-1",
      "data-index": index,
      "data-for": side(word),
      vars: { "--colour": colour(side(word)), "--strength": (STRONGEST * share).toFixed(3) },
    },
    visible(word.text),
  );
  return text ? [before, made, after] : [made, after];
}

function showBubble(element) {
  const word = words[element.dataset.index];
  if (!word) return;
  const largest = Math.max(...word.scores.map(Math.abs), 1e-9);
  const head = make("p", {}, make("b", {}, visible(word.text)), ` ${signed(word.contribution)} for ${compared[0]}`);
  if (compared.length > 1) head.append(` over ${compared[1]}`);
  if (!word.counted) head.append(make("span", { class: "quiet" }, " · not counted"));
  const rows = word.scores.map((score, index) => {
    const width = (Math.abs(score) / largest) * 50;
    const bar = draw("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" });
    bar.append(draw("rect", { x: 49.7, y: 0, width: 0.6, height: 8, class: "axis" }));
    const filled = draw("rect", { x: score < 0 ? 50 - width : 50, y: 1, width, height: 6, rx: 1 });
    filled.style.fill = colour(compared[index]);
    bar.append(filled);
    return make("div", { class: "score" }, named(compared[index]), bar, make("span", { class: "value" }, signed(score)));
  });
  bubble.replaceChildren(head, ...rows);
  bubble.hidden = false;
  const box = element.getClientRects()[0] || element.getBoundingClientRect();
  const left = Math.min(Math.max(8, box.left + box.width / 2 - bubble.offsetWidth / 2), innerWidth - bubble.offsetWidth - 8);
  const below = box.bottom + 8 + bubble.offsetHeight < innerHeight;
  bubble.style.left = `${left}px`;
  bubble.style.top = `${below ? box.bottom + 8 : Math.max(8, box.top - bubble.offsetHeight - 8)}px`;
  element.setAttribute("aria-describedby", "bubble");
}

function hideBubble() {
  bubble.hidden = true;
}

function move(event) {
  const all = place.querySelectorAll(".word");
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -all.length, End: all.length }[event.key];
  if (event.key === "Escape") hideBubble();
  if (!step || !all.length) return;
  event.preventDefault();
  const next = Math.min(Math.max(0, current + step), all.length - 1);
  all[current].tabIndex = -1;
  current = next;
  all[current].tabIndex = 0;
  all[current].focus();
}

const wordOf = (event) => event.target.closest?.(".word");
place.addEventListener("mouseover", (event) => wordOf(event) && showBubble(wordOf(event)));
place.addEventListener("mouseleave", hideBubble);
place.addEventListener("focusin", (event) => {
  const element = wordOf(event);
  if (!element) return;
  element.setAttribute("aria-selected", "true");
  showBubble(element);
});
place.addEventListener("focusout", (event) => {
  wordOf(event)?.setAttribute("aria-selected", "false");
  hideBubble();
});
place.addEventListener("click", (event) => {
  const element = wordOf(event);
  if (!element) return;
  place.querySelectorAll(".word")[current].tabIndex = -1;
  current = Number(element.dataset.index);
  element.tabIndex = 0;
  element.focus();
});
place.addEventListener("keydown", move);
addEventListener("scroll", hideBubble, { passive: true });
