// A chat with the gateway, which shows turn by turn who answers and why, also for the message that is being typed.

import { colour, compare, learn, named } from "./colors.js";
import { find, make, NONE_FITS, setText } from "./dom.js";
import { describeSureness, drawEvidence, explainTurn, nameReason } from "./evidence.js";
import { findExamples } from "./examples.js";
import { makePreview } from "./preview.js";
import { makeRating, takesFeedback } from "./rating.js";
import { listFacts, streamAnswer } from "./stream.js";
import { explainTarget, nameTarget } from "./target.js";
import { paintWords } from "./words.js";

const WAIT_MS = 80; // without a key before the request is sent
const FOLLOW_UP = "Ok, and how long does that take?";

const box = find("chat-text");
let messages = []; // that were answered, as clients send them
let running = null; // the answer under way
let preview = { text: null, target: null, turn: null, turns: [] };

// who would answer ---------------------------------------------------------------------------------------------------

const { look, later } = makePreview({ waitMs: WAIT_MS, winner: "chat-winner", sure: "chat-sure", build: buildQuestion, show });

function buildQuestion() {
  const text = box.value.trim();
  const all = text ? [...messages, { role: "user", content: text }] : messages;
  find("chat-send").disabled = !text;
  if (all.length) return { text, body: { messages: all, explain: true, target: true } };
  showNothing();
  return null;
}

function showNothing() {
  preview = { text: "", target: null, turn: null, turns: [] };
  find("chat-decision").hidden = true;
  setText(find("chat-note"), "");
  setText(find("chat-send").querySelector("span"), "Send");
  setText(find("chat-send").querySelector("b"), "");
  offerMessages();
  find("chat").dataset.ready = "";
}

function show(found, text) {
  const row = found.data[0];
  const turns = found.turns ?? [];
  const last = turns.at(-1) ?? { ...row, turn: 0, decided: 0, why: "routed", weights: [] };
  learn(found.experts);
  compare(last.compared ?? []);
  preview = { text, target: row.target, turn: last, turns, experts: found.experts };
  find("chat-decision").hidden = false;
  setText(find("chat-decision-title"), text ? "The expert for this message" : "The expert of the last answer");
  find("chat-winner-swatch").style.setProperty("--colour", row.expert === null ? "var(--line)" : colour(row.expert));
  setText(find("chat-winner"), row.expert ?? NONE_FITS);
  setText(find("chat-sure"), describeSureness(row, found.calibrated));
  setText(find("chat-why"), explainTurn(last));
  setText(find("chat-spoken"), last.summary ?? "");
  find("chat-evidence").replaceChildren(drawEvidence(last, turns));
  if (text) nameTarget(find("chat-send"), row.target);
  setText(find("chat-note"), text ? explainTarget(row.target, row.expert ?? row.ranking[0]?.expert) : "");
  find("chat-alone").hidden = found.turns !== undefined;
  offerMessages(found.router);
  find("chat").dataset.ready = text; // for tests that wait for it
}

// the thread -----------------------------------------------------------------------------------------------------------

function addTurn(text, { turn, turns }) {
  const message = turn.words && turn.decided === turn.turn ? paintWords(turn) : [text];
  const parts = {
    who: make("p", { class: "who" }),
    answer: make("div", { class: "text", "aria-live": "polite", "aria-busy": "true" }),
    facts: make("dl", { class: "facts" }),
  };
  const summary = make("summary", {}, "Why, and how long it took");
  const why = make("details", { class: "why" }, summary, make("p", {}, explainTurn(turn)), make("p", { class: "spoken" }, turn.summary ?? ""), drawEvidence(turn, turns), parts.facts);
  const item = make(
    "li",
    { class: "turn streaming", "data-turn": turn.turn },
    make("p", { class: "message" }, make("span", { class: "hidden" }, "You: "), ...message),
    make("div", { class: "reply" }, parts.who, parts.answer, why),
  );
  find("thread").append(item);
  find("chat-empty").hidden = true;
  return { item, turn, ...parts };
}

// The expert is the one that answers, and the reason is that of the decision.
function showWho(entry, known) {
  const expert = known.expert ?? entry.turn.expert ?? NONE_FITS;
  entry.item.dataset.expert = expert;
  const note = make("span", { class: "quiet" }, known.tried?.length ? `after ${known.tried.join(", ")} failed` : nameReason(entry.turn));
  entry.who.replaceChildren(named(expert), note);
  entry.facts.replaceChildren(...listFacts(known));
}

async function send() {
  const text = box.value.trim();
  if (!text || running) return;
  if (preview.text !== text) await look();
  if (preview.text !== text || !preview.target?.expert || running) return;
  const mine = (running = new AbortController());
  const entry = addTurn(text, preview);
  const sent = [...messages, { role: "user", content: text }];
  let received = "";
  box.value = "";
  setBusy(true);
  try {
    const onText = (piece) => {
      received += piece;
      entry.answer.append(piece);
      keepInSight();
    };
    let requestId = null;
    const onKnown = (known) => {
      requestId = known.requestId;
      showWho(entry, known);
    };
    await streamAnswer({ messages: sent, model: "auto", signal: mine.signal, onText, onKnown });
    if (requestId && (await takesFeedback())) entry.answer.after(makeRating(requestId, entry.item.dataset.expert, preview.experts));
  } catch (error) {
    fail(entry, error, text, received);
  } finally {
    if (received) messages = [...sent, { role: "assistant", content: received }];
    running = null;
    entry.item.classList.remove("streaming");
    entry.answer.setAttribute("aria-busy", "false");
    setBusy(false);
    look();
  }
}

function fail(entry, error, text, received) {
  const isStopped = error.name === "AbortError";
  const what = isStopped ? "Stopped." : error.message || "The gateway cannot be reached.";
  entry.answer.append(make("p", isStopped ? { class: "quiet" } : { class: "wrong", role: "alert" }, what));
  if (received) return;
  entry.item.classList.add("failed"); // it is not part of the conversation, and can be sent again
  if (!box.value) box.value = text;
  if (error.status === 401) document.dispatchEvent(new CustomEvent("ir3de-keys-wanted", { detail: "api" }));
}

function setBusy(on) {
  if (!on && document.activeElement === find("chat-stop")) box.focus(); // which the keyboard would lose
  find("chat-stop").hidden = !on;
  find("chat-send").setAttribute("aria-disabled", on);
  find("chat-new").disabled = on;
  keepInSight();
}

function keepInSight() {
  const end = document.documentElement.scrollHeight - innerHeight;
  if (end - scrollY < 240) scrollTo({ top: end });
}

function startAgain() {
  messages = [];
  find("thread").replaceChildren();
  find("chat-empty").hidden = false;
  box.value = "";
  look();
  box.focus();
}

// messages to try ------------------------------------------------------------------------------------------------------

async function offerMessages(router) {
  const examples = (await findExamples(router).catch(() => [])).filter((one) => one.experts.length === 1);
  const last = find("thread").lastElementChild?.dataset.expert;
  const subjects = examples.filter((one) => one.experts[0] !== last);
  const offered = last ? [["Follow-up", FOLLOW_UP], ...subjects.slice(0, 3).map((one) => [one, one.text])] : subjects.slice(0, 5).map((one) => [one, one.text]);
  const known = JSON.stringify(offered);
  const place = find("chat-examples");
  if (place.dataset.offered === known) return;
  place.dataset.offered = known;
  place.replaceChildren(...offered.map(([about, text]) => makeChip(about, text)));
}

function makeChip(about, text) {
  const click = () => {
    box.value = text;
    box.focus();
    look();
  };
  const label = typeof about === "string" ? [about] : [named(about.experts[0])];
  const spoken = `${typeof about === "string" ? about : about.experts[0]}: ${text}`;
  return make("button", { class: "chip", type: "button", title: text, "aria-label": spoken, on: { click } }, ...label);
}

function setUp() {
  box.addEventListener("input", later);
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  find("chat-send").addEventListener("click", send);
  find("chat-stop").addEventListener("click", () => running?.abort());
  find("chat-new").addEventListener("click", startAgain);
}

setUp();

export const chat = { show: look };
