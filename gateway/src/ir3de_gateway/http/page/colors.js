// One colour an expert: that of its place among the router's experts, as in terminals and notebooks.

import { make } from "./dom.js";

const COLOURS = 12;
const PLACE = "ir3de-experts";

let order = []; // the router's experts; after them those that it no longer has, as they are met
try {
  order = JSON.parse(localStorage.getItem(PLACE)) || []; // for views that are opened before the router is known
} catch {
  // then it is learnt anew
}

// `experts` are all of the router's, in its order.
export function learn(experts) {
  if (experts.every((name, place) => order[place] === name)) return;
  order = [...experts];
  try {
    localStorage.setItem(PLACE, JSON.stringify(order));
  } catch {
    // then it lasts as long as the page
  }
}

let compared = new Map(); // the slots of experts that are shown side by side

function findSlot(name) {
  const place = order.indexOf(name);
  return (place < 0 ? order.push(name) - 1 : place) % COLOURS;
}

// Beyond twelve experts two of those that are compared may have the same colour: the later one takes the next free one.
export function compare(names) {
  compared = new Map();
  const taken = new Set();
  for (const name of names) {
    let slot = findSlot(name);
    while (taken.has(slot) && taken.size < COLOURS) slot = (slot + 1) % COLOURS;
    taken.add(slot);
    compared.set(name, slot);
  }
}

export const colour = (name) => `var(--e${compared.get(name) ?? findSlot(name)})`;

// An expert's name with its colour before it.
export function named(name, tag = "span") {
  return make(tag, { class: "name" }, make("i", { class: "swatch", vars: { "--colour": colour(name) } }), name);
}
