// One colour an expert, the same every time: the first free one when it is first seen, remembered by name.

import { make } from "./dom.js";

const COLOURS = 12;
const PLACE = "ir3de-colours";

let slots = {};
try {
  slots = JSON.parse(localStorage.getItem(PLACE)) || {};
} catch {
  slots = {};
}

export function learn(experts) {
  let changed = false;
  for (const name of experts) {
    if (Object.hasOwn(slots, name)) continue;
    const here = new Set(experts.filter((other) => Object.hasOwn(slots, other)).map((other) => slots[other]));
    const remembered = new Set(Object.values(slots));
    const all = [...Array(COLOURS).keys()];
    const free = all.find((slot) => !remembered.has(slot)) ?? all.find((slot) => !here.has(slot));
    slots[name] = free ?? Object.keys(slots).length % COLOURS;
    changed = true;
  }
  if (!changed) return;
  try {
    localStorage.setItem(PLACE, JSON.stringify(slots));
  } catch {
    // then they last as long as the page
  }
}

export function colour(name) {
  learn([name]);
  return `var(--e${slots[name]})`;
}

// An expert's name with its colour before it.
export function named(name, tag = "span") {
  return make(tag, { class: "name" }, make("i", { class: "swatch", vars: { "--colour": colour(name) } }), name);
}
