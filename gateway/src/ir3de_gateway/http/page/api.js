// The gateway's API: keys, errors as the gateway reports them, streams event by event.

import { begin } from "./dom.js";

export class Refused extends Error {
  constructor(status, message, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

const read = (name) => {
  try {
    return sessionStorage.getItem(name) || "";
  } catch {
    return "";
  }
};

export const keys = {
  get api() {
    return read("ir3de-key");
  },
  get admin() {
    return read("ir3de-admin");
  },
  keep(api, admin) {
    try {
      sessionStorage.setItem("ir3de-key", api.trim());
      sessionStorage.setItem("ir3de-admin", admin.trim());
    } catch {
      // without storage there is nowhere to keep them
    }
  },
  // #token=… (the admin token) and #key=… in the address are taken, and taken out of the address
  takeFromAddress() {
    const given = new URLSearchParams(location.hash.slice(1));
    if (!given.has("token") && !given.has("key")) return;
    keys.keep(given.get("key") ?? keys.api, given.get("token") ?? keys.admin);
    given.delete("token");
    given.delete("key");
    const rest = given.toString().replace(/=$/, "");
    history.replaceState(null, "", location.pathname + location.search + (rest ? `#${rest}` : ""));
  },
};

keys.takeFromAddress(); // before the first request

export async function request(path, { method = "GET", body, signal, headers = {}, asAdmin = path.startsWith("admin/") } = {}) {
  const secret = asAdmin ? keys.admin : (path === "metrics" && keys.admin) || keys.api;
  const sent = { ...headers };
  if (secret) sent.authorization = `Bearer ${secret}`;
  if (body !== undefined) sent["content-type"] = "application/json";
  const response = await fetch(path, {
    method,
    headers: sent,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
    cache: "no-store",
    credentials: "omit",
  });
  if (response.ok) return response;
  let error = {};
  try {
    error = (await response.json()).error || {};
  } catch {
    // not every proxy on the way sends JSON
  }
  throw new Refused(response.status, error.message || `The gateway answered ${response.status}.`, error.code);
}

export const explainError = (error) => (error.status ? begin(error.message) : "The gateway cannot be reached.");

export const requestJSON = async (path, options) => (await request(path, options)).json();

// The data of each server-sent event, as it comes.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    rest = (rest + (value || "")).replaceAll("\r\n", "\n");
    const whole = rest.split("\n\n");
    rest = done ? "" : whole.pop();
    for (const event of whole) {
      const data = event
        .split("\n")
        .filter((line) => line.startsWith("data:"))
        .map((line) => line.slice(5).trimStart());
      if (data.length) yield data.join("\n");
    }
    if (done) return;
  }
}
