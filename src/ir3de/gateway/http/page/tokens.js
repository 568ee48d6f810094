// A prompt's tokens, each in the colour of the expert it votes for; what one says, in a bubble.

import { colour, named } from "./colors.js";
import { draw, find, make, percent } from "./dom.js";

const place = find("tokens");
const bubble = find("bubble");
let votes = [];
let experts = [];
let current = 0;

// Nothing is certain where entropy is log C; everything where it is 0.
export function certainty(entropy, count) {
  return count < 2 ? 1 : Math.min(1, Math.max(0, 1 - entropy / Math.log(count)));
}

export const visible = (text) => text.trim() || text.replaceAll("\n", "⏎").replaceAll(" ", "␣") || "·";

export function showTokens(row, names, flips) {
  votes = row.votes;
  experts = names;
  current = Math.min(current, Math.max(0, votes.length - 1));
  const alone = new Map((flips?.alone || []).map((one) => [one.place, one.expert]));
  const together = new Set(flips?.together?.places || []);
  hideBubble();
  const made = votes.flatMap((vote, index) => token(vote, index, alone.get(index), together.has(index)));
  if (row.tokens > votes.length) {
    made.push(make("span", { class: "beyond" }, ` and ${row.tokens - votes.length} more that are not counted`));
  }
  place.replaceChildren(...made);
  place.classList.toggle("empty", !made.length);
}

// The token as an element, and before it the space that it begins with, which has no colour.
function token(vote, index, other, together) {
  const word = vote.text.trim();
  const before = word ? vote.text.slice(0, vote.text.indexOf(word)) : "";
  const after = word ? vote.text.slice(before.length + word.length) : vote.text.replace(/[^\n]/g, "");
  const sure = certainty(vote.entropy, experts.length);
  const said = [visible(vote.text), vote.counted ? `votes ${vote.vote}` : "not counted", `${percent(sure)} certain`];
  if (other) said.push(`without it ${other}`);
  const kinds = ["token", !vote.counted && "filtered", other && "alone", together && "together", !word && "space"];
  const element = make(
    "span",
    {
      class: kinds.filter(Boolean).join(" "),
      role: "option",
      "aria-selected": "false",
      "aria-label": said.join(", "),
      tabindex: index === current ? "0" : "-1",
      "data-index": index,
      "data-vote": vote.vote,
      vars: { "--colour": colour(vote.vote), "--strength": (0.07 + 0.86 * Math.sqrt(sure)).toFixed(3) },
    },
    visible(vote.text),
  );
  return [before, element, after];
}

function showBubble(element) {
  const vote = votes[element.dataset.index];
  if (!vote) return;
  const largest = Math.max(...vote.scores.map(Math.abs), 1e-9);
  const order = vote.scores.map((score, index) => [score, index]).sort((a, b) => b[0] - a[0]).slice(0, 12);
  const sure = certainty(vote.entropy, experts.length);
  const head = make("p", {}, make("b", {}, visible(vote.text)), ` ${percent(sure)} certain`);
  if (!vote.counted) head.append(make("span", { class: "quiet" }, " · not counted"));
  const rows = order.map(([score, index]) => {
    const width = (Math.abs(score) / largest) * 50;
    const bar = draw("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" });
    bar.append(draw("rect", { x: 49.7, y: 0, width: 0.6, height: 8, class: "axis" }));
    const filled = draw("rect", { x: score < 0 ? 50 - width : 50, y: 1, width, height: 6, rx: 1 });
    filled.style.fill = colour(experts[index]);
    bar.append(filled);
    const value = make("span", { class: "value" }, score.toFixed(2).replace("-", "−"));
    return make("div", { class: "score" }, named(experts[index]), bar, value);
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
  const all = place.querySelectorAll(".token");
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

const tokenOf = (event) => event.target.closest?.(".token");
place.addEventListener("mouseover", (event) => tokenOf(event) && showBubble(tokenOf(event)));
place.addEventListener("mouseleave", hideBubble);
place.addEventListener("focusin", (event) => {
  const element = tokenOf(event);
  if (!element) return;
  element.setAttribute("aria-selected", "true");
  showBubble(element);
});
place.addEventListener("focusout", (event) => {
  tokenOf(event)?.setAttribute("aria-selected", "false");
  hideBubble();
});
place.addEventListener("click", (event) => {
  const element = tokenOf(event);
  if (!element) return;
  place.querySelectorAll(".token")[current].tabIndex = -1;
  current = Number(element.dataset.index);
  element.tabIndex = 0;
  element.focus();
});
place.addEventListener("keydown", move);
addEventListener("scroll", hideBubble, { passive: true });
