// The addresses of an expert that has several: how each one is, and a button that takes it out of service.

import { count, make } from "./dom.js";

const STATES = {
  up: ["well", "Healthy"],
  warming: ["trying", "Warming up"],
  "half-open": ["trying", "Being probed"],
  cooling: ["trying", "Cooling after 429"],
  drained: ["trying", "Drained"],
  open: ["ill", "Circuit breaker open"],
  down: ["ill", "Down"],
};

export function drawReplicas(expert, onDrain) {
  const all = expert.replicas ?? [];
  if (all.length < 2) return null; // an expert of one address is shown as such
  return make("ul", { class: "replicas", "aria-label": `Replicas of ${expert.name}` }, ...all.map((one) => drawReplica(expert.name, one, onDrain)));
}

function drawReplica(expert, replica, onDrain) {
  const [kind, word] = STATES[replica.state] ?? ["trying", replica.state];
  const action = replica.drained ? "Use again" : "Drain";
  const click = () => onDrain(expert, replica.name, !replica.drained);
  return make(
    "li",
    { "data-replica": replica.name, title: replica.base_url },
    make("span", { class: "address" }, replica.name),
    make("span", { class: `health ${kind}` }, word),
    make("span", { class: "quiet" }, `${count(replica.in_flight, "request")} in flight`),
    make("button", { class: "button small", type: "button", "aria-label": `${action}: ${replica.name} of ${expert}`, on: { click } }, action),
  );
}
