// Who answers, how they are, and how they come and go.

import { request, explainError } from "./api.js";
import { named } from "./colors.js";
import { find, make, number, setText, showNotice } from "./dom.js";
import { showRefusal, showUnlocked } from "./locked.js";
import { drawReplicas } from "./replicas.js";

const EVERY = 4000;
const HEALTH = {
  closed: ["well", "Healthy"],
  "half-open": ["trying", "Being probed"],
  open: ["ill", "Circuit breaker open"],
  cooling: ["trying", "Cooling after 429"],
};
let timer = 0;
let version = null; // the ETag of what is shown: a change is made to that, or not at all
let file = null;
let open = false;

async function look() {
  clearTimeout(timer);
  open = true;
  try {
    const response = await request("admin/experts");
    version = response.headers.get("etag");
    show(await response.json());
    showUnlocked("experts");
  } catch (error) {
    if (showRefusal("experts", error)) return;
  }
  if (open) timer = setTimeout(look, EVERY);
}

function show(found) {
  const all = found.data;
  const place = find("people");
  const present = new Map([...place.children].map((item) => [item.dataset.expert, item]));
  for (const one of all) {
    const before = present.get(one.name);
    present.delete(one.name);
    const content = JSON.stringify(one);
    if (before?.dataset.content === content) continue; // what is in focus stays in focus
    const item = person(one);
    item.dataset.content = content;
    const focused = before?.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    if (before) before.replaceWith(item);
    else place.append(item);
    if (focused) item.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
  }
  for (const gone of present.values()) gone.remove();
}

function person(one) {
  const upstream = one.upstream;
  const [kind, word] = upstream ? HEALTH[one.breaker] || ["trying", one.breaker] : ["trying", "No endpoint"];
  const address = [upstream?.base_url, upstream?.model].filter(Boolean).join(" · ");
  const leave = { class: "button", type: "button", "aria-label": `Remove ${one.name}`, on: { click: () => remove(one.name) } };
  const facts = [
    ["in flight", one.in_flight],
    ["waiting", one.waiting],
    ["prompts fitted", one.prompts],
    ["tokens fitted", one.tokens],
  ];
  return make(
    "li",
    { class: "card person", "data-expert": one.name },
    make(
      "div",
      { class: "row" },
      named(one.name, "h2"),
      make("span", { class: `health ${kind}` }, word),
    ),
    make("p", { class: "quiet" }, upstream ? address : "The router has its domain, but it has no endpoint."),
    one.routed ? null : make("p", { class: "quiet" }, "The router does not know it. It answers only requests that name it."),
    drawReplicas(one, drain),
    make(
      "div",
      { class: "row" },
      make(
        "dl",
        { class: "facts" },
        ...facts
          .filter(([, value]) => value !== null && value !== undefined)
          .map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, number(value)))),
      ),
      make("button", leave, "Remove"),
    ),
  );
}

async function change(path, options) {
  const headers = version ? { "if-match": version } : {};
  try {
    await request(path, { ...options, headers });
  } catch (error) {
    if (error.status === 412) {
      await look();
      error.message = "Somebody else changed the experts meanwhile. The list is now up to date: please try again.";
    }
    throw error;
  }
  await look();
}

async function drain(name, replica, isDrained) {
  const path = `admin/experts/${encodeURIComponent(name)}/replicas/${encodeURIComponent(replica)}`;
  try {
    await change(path, { method: "PUT", body: { drain: isDrained } });
  } catch (error) {
    showNotice(find("experts-notice"), explainError(error));
  }
}

function remove(name) {
  const dialog = find("confirm");
  setText(find("confirm-title"), `Remove ${name}?`);
  setText(find("confirm-text"), "Its prompts will go to the other experts. Requests in flight will finish.");
  setText(find("confirm-yes"), "Remove");
  dialog.returnValue = "";
  dialog.onclose = async () => {
    if (dialog.returnValue !== "yes") return;
    try {
      await change(`admin/experts/${encodeURIComponent(name)}`, { method: "DELETE" });
    } catch (error) {
      showNotice(find("experts-notice"), explainError(error));
    }
  };
  dialog.showModal();
}

async function add(event) {
  event.preventDefault();
  const value = (id) => find(id).value.trim();
  const wrong = (id, text) => {
    showNotice(find("add-wrong"), text);
    find(id)?.focus();
  };
  showNotice(find("add-wrong"), "");
  if (!value("add-name")) return wrong("add-name", "The expert needs a name.");
  if (!/^https?:\/\//.test(value("add-url"))) return wrong("add-url", "The endpoint must look like http://127.0.0.1:8001/v1");
  const texts = find("add-texts").value.split("\n").map((line) => line.trim()).filter(Boolean);
  if (!texts.length && !file) return wrong("add-texts", "The router needs prompts of the domain: type some, or choose a file.");
  const upstream = { base_url: value("add-url") };
  if (value("add-model")) upstream.model = value("add-model");
  if (value("add-key")) upstream.api_key_env = value("add-key");
  const body = { name: value("add-name"), upstream };
  if (file) body.file = { name: file.name, content: await base64(file) };
  else body.texts = texts;
  const button = find("add-send");
  button.disabled = true;
  setText(button, "Adding…");
  try {
    await change("admin/experts", { method: "POST", body });
    find("add").reset();
    choose(null);
  } catch (error) {
    wrong("add-name", error.message);
  } finally {
    button.disabled = false;
    setText(button, "Add expert");
  }
}

function base64(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).split(",", 2)[1] || "");
    reader.onerror = () => reject(new Error(`${blob.name} cannot be read.`));
    reader.readAsDataURL(blob);
  });
}

function choose(chosen) {
  file = chosen || null;
  find("chosen").hidden = !file;
  setText(find("chosen").firstElementChild, file ? `${file.name}, ${number(Math.ceil(file.size / 1024))} KB` : "");
  if (!file) find("add-file").value = "";
  if (file && !find("add-name").value) find("add-name").value = file.name.replace(/\..*$/, "");
}

const drop = find("drop");
for (const kind of ["dragenter", "dragover"]) {
  drop.addEventListener(kind, (event) => {
    event.preventDefault();
    drop.classList.add("over");
  });
}
for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => drop.classList.remove("over"));
drop.addEventListener("drop", (event) => {
  if (!event.dataTransfer.files.length) return;
  event.preventDefault();
  choose(event.dataTransfer.files[0]);
});
find("add-file").addEventListener("change", (event) => choose(event.target.files[0]));
find("unchoose").addEventListener("click", () => choose(null));
find("add").addEventListener("submit", add);

export const experts = {
  show: look,
  hide() {
    open = false;
    clearTimeout(timer);
  },
};
