// The answer, as it streams from the expert that was chosen, and who that was.

import { ask, events } from "./api.js";
import { named } from "./colors.js";
import { find, make, milliseconds, percent, say } from "./dom.js";

let under = null; // the answer under way

export function answers(promptText) {
  find("send").addEventListener("click", () => send(promptText()));
  find("stop").addEventListener("click", () => under?.abort());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && under && !document.querySelector("dialog[open]")) under.abort();
  });
}

function busy(on) {
  find("stop").hidden = !on;
  find("send").disabled = on;
  find("answer-text").setAttribute("aria-busy", on);
  find("answer").classList.toggle("streaming", on);
}

async function send(content) {
  if (!content.trim() || under) return;
  const mine = (under = new AbortController());
  const text = find("answer-text");
  const begin = performance.now();
  const known = { begin, pieces: 0 };
  find("answer").hidden = false;
  find("answer-facts").replaceChildren();
  text.replaceChildren();
  say(find("answer-state"), "Asking…");
  busy(true);
  try {
    const body = { model: "auto", stream: true, stream_options: { include_usage: true }, messages: [{ role: "user", content }] };
    const response = await ask("v1/chat/completions", { method: "POST", body, signal: mine.signal });
    fromHeaders(known, response.headers);
    await follow(response, known, text);
    say(find("answer-state"), "");
  } catch (error) {
    if (error.name === "AbortError") say(find("answer-state"), "Stopped.");
    else {
      say(find("answer-state"), "");
      text.append(make("p", { class: "wrong", role: "alert" }, error.message || "The gateway cannot be reached."));
      if (error.status === 401) document.dispatchEvent(new CustomEvent("ir3de-keys-wanted", { detail: "api" }));
    }
  } finally {
    known.total = performance.now() - begin;
    facts(known);
    under = null;
    busy(false);
  }
}

async function follow(response, known, text) {
  if (!(response.headers.get("content-type") || "").includes("event-stream")) {
    const whole = await response.json();
    note(known, whole);
    text.append(whole.choices?.[0]?.message?.content ?? "");
    return;
  }
  for await (const data of events(response)) {
    if (data === "[DONE]") return;
    let piece;
    try {
      piece = JSON.parse(data);
    } catch {
      continue; // a comment of the expert's own
    }
    if (piece.error) throw new Error(piece.error.message || "The expert did not finish its answer.");
    note(known, piece);
    const said = piece.choices?.[0]?.delta?.content;
    if (!said) continue;
    if (known.first === undefined) {
      known.first = performance.now() - known.begin;
      say(find("answer-state"), "");
    }
    known.pieces += 1;
    text.append(said);
    facts(known);
  }
}

function fromHeaders(known, headers) {
  const name = (header) => {
    const value = headers.get(header);
    try {
      return value && decodeURIComponent(value);
    } catch {
      return value;
    }
  };
  known.expert = name("x-ir3de-expert");
  known.model = name("x-ir3de-model");
  const number = (header) => (headers.has(header) ? Number(headers.get(header)) : undefined);
  known.confidence = number("x-ir3de-confidence");
  known.score = number("x-ir3de-expected-score");
  known.route = number("x-ir3de-route-us");
  known.fallbacks = Number(headers.get("x-ir3de-fallbacks") || 0);
  facts(known);
}

function note(known, piece) {
  const said = piece.ir3de;
  if (said) {
    Object.assign(known, { expert: said.expert ?? known.expert, model: said.model ?? known.model });
    if (Array.isArray(said.fallbacks)) known.tried = said.fallbacks.map((one) => one.from);
    if (said.confidence !== undefined) known.confidence = said.confidence;
    if (said.expected_score !== undefined) known.score = said.expected_score;
    if (said.why && said.why !== "routed") known.why = said.why;
  }
  if (piece.usage?.completion_tokens) known.tokens = piece.usage.completion_tokens;
}

function facts(known) {
  const rows = [];
  const row = (name, value) => value && rows.push(make("div", {}, make("dt", {}, name), make("dd", {}, value)));
  row("Expert", known.expert ? named(known.expert) : null);
  row("Model", known.model && known.model !== known.expert ? known.model : null);
  row("Confidence", Number.isFinite(known.confidence) ? percent(known.confidence) : null);
  row("Expected score", Number.isFinite(known.score) ? known.score.toFixed(2) : null);
  row("Routed in", Number.isFinite(known.route) ? `${Math.round(known.route)} µs` : null);
  row("First token", Number.isFinite(known.first) ? milliseconds(known.first) : null);
  row("Total", Number.isFinite(known.total) ? milliseconds(known.total) : null);
  row("Tokens", known.tokens ? String(known.tokens) : null);
  row("Because", known.why);
  const failed = known.tried?.length ? known.tried.join(", ") : known.fallbacks;
  row("After", failed ? `${failed} failed` : null);
  find("answer-facts").replaceChildren(...rows);
}
