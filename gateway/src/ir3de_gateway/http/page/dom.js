// Elements from data. Text is always text: nothing here reads markup.

export const NONE_FITS = "none fits";
export const find = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "vars") for (const [key, number] of Object.entries(value)) element.style.setProperty(key, number);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function draw(tag, properties = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text; // what is read aloud is read once
}

export function showNotice(element, text) {
  element.hidden = !text;
  setText(element, text || "");
}

export const count = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
export const begin = (text) => text.charAt(0).toUpperCase() + text.slice(1);
export const list = (words) => words.join(", ").replace(/, ([^,]*)$/, " and $1");

const whole = new Intl.NumberFormat("en");
export const number = (value) => (Number.isFinite(value) ? whole.format(value) : "–");
export const percent = (share) =>
  share > 0.995 && share < 1 ? "> 99 %" : share > 0 && share < 0.005 ? "< 1 %" : `${Math.round(share * 100)} %`;

export function milliseconds(value) {
  if (!Number.isFinite(value)) return "–";
  return value >= 1000 ? `${(value / 1000).toFixed(value >= 10000 ? 0 : 1)} s` : `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
}
