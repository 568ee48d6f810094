// One colour an expert: that of its place among the router's experts, as in terminals and notebooks.

import { make } from "./dom.js";

const COLOURS = 12;
const PLACE = "ir3de-experts";

let order = []; // the router's experts; after them those that it no longer has, as they are met
try {
  order = JSON.parse(localStorage.getItem(PLACE)) || []; // for views that are opened before the router was asked
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

export function colour(name) {
  const place = order.indexOf(name);
  return `var(--e${(place < 0 ? order.push(name) - 1 : place) % COLOURS})`;
}

// An expert's name with its colour before it.
export function named(name, tag = "span") {
  return make(tag, { class: "name" }, make("i", { class: "swatch", vars: { "--colour": colour(name) } }), name);
}
