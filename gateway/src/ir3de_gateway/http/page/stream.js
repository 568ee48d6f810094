// Requests an answer, and passes it on as it streams, with what is known about its expert.

import { request, events } from "./api.js";
import { named } from "./colors.js";
import { count, make, milliseconds, percent } from "./dom.js";

// `onText` gets each piece of the answer, `onKnown` what is known so far. Returns the whole text.
export async function streamAnswer({ messages, model, signal, onText, onKnown }) {
  const known = { begin: performance.now() };
  const report = () => onKnown(known);
  try {
    const body = { model, stream: true, stream_options: { include_usage: true }, messages };
    const response = await request("v1/chat/completions", { method: "POST", body, signal });
    readHeaders(known, response.headers);
    report();
    return await follow(response, known, onText, report);
  } finally {
    known.total = performance.now() - known.begin;
    report();
  }
}

async function follow(response, known, onText, report) {
  if (!(response.headers.get("content-type") || "").includes("event-stream")) {
    const whole = await response.json();
    readBody(known, whole);
    const text = whole.choices?.[0]?.message?.content ?? "";
    onText(text);
    return text;
  }
  let text = "";
  for await (const data of events(response)) {
    if (data === "[DONE]") break;
    let piece;
    try {
      piece = JSON.parse(data);
    } catch {
      continue; // a comment of the expert's own
    }
    if (piece.error) throw new Error(piece.error.message || "The expert did not finish its answer.");
    readBody(known, piece);
    const content = piece.choices?.[0]?.delta?.content;
    if (!content) continue;
    known.first ??= performance.now() - known.begin;
    text += content;
    onText(content);
    report();
  }
  return text;
}

function readHeaders(known, headers) {
  const name = (header) => {
    const value = headers.get(header);
    try {
      return value && decodeURIComponent(value);
    } catch {
      return value;
    }
  };
  const number = (header) => (headers.has(header) ? Number(headers.get(header)) : undefined);
  known.requestId = headers.get("x-request-id");
  known.expert = name("x-ir3de-expert");
  known.decided = name("x-ir3de-decided");
  known.reason = name("x-ir3de-reason");
  known.model = name("x-ir3de-model");
  known.confidence = number("x-ir3de-confidence");
  known.score = number("x-ir3de-expected-score");
  known.route = number("x-ir3de-route-us");
  known.fallbacks = Number(headers.get("x-ir3de-fallbacks") || 0);
}

function readBody(known, piece) {
  const provenance = piece.ir3de;
  if (provenance) {
    Object.assign(known, { expert: provenance.expert ?? known.expert, model: provenance.model ?? known.model });
    Object.assign(known, { decided: provenance.decided ?? known.decided, reason: provenance.reason ?? known.reason });
    if (Array.isArray(provenance.fallbacks)) known.tried = provenance.fallbacks.map((one) => one.from);
    if (provenance.confidence !== undefined) known.confidence = provenance.confidence;
    if (provenance.expected_score !== undefined) known.score = provenance.expected_score;
    if (provenance.why && provenance.why !== "routed") known.why = provenance.instead ? `${provenance.why}: the ${provenance.instead} answers` : provenance.why;
  }
  if (piece.usage?.completion_tokens) known.tokens = piece.usage.completion_tokens;
}

// The expert that was decided on, and why another one answered.
function listDecided({ decided, reason }) {
  return make("span", {}, named(decided), reason ? ` (${reason})` : "");
}

// Who answered, how surely, and how long it took, as rows of a list.
export function listFacts(known) {
  const rows = [];
  const row = (name, value) => value && rows.push(make("div", {}, make("dt", {}, name), make("dd", {}, value)));
  row("Expert", known.expert ? named(known.expert) : null);
  row("Decided", known.decided && known.decided !== known.expert ? listDecided(known) : null);
  row("Model", known.model && known.model !== known.expert ? known.model : null);
  row("Confidence", Number.isFinite(known.confidence) ? percent(known.confidence) : null);
  row("Expected score", Number.isFinite(known.score) ? known.score.toFixed(2) : null);
  row("Routed in", Number.isFinite(known.route) ? `${Math.round(known.route)} µs` : null);
  row("First token after", Number.isFinite(known.first) ? milliseconds(known.first) : null);
  row("Done after", Number.isFinite(known.total) ? milliseconds(known.total) : null);
  row("Answer", known.tokens ? count(known.tokens, "token") : null);
  row("Because", known.why);
  const failed = known.tried?.length ? known.tried.join(", ") : known.fallbacks;
  row("After", failed ? `${failed} failed` : null);
  return rows;
}
