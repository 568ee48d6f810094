// Small charts, drawn by hand: columns over time, columns of a histogram.

import { count, draw, make, number, setText } from "./dom.js";

const WIDTH = 720;

function frame(place, height, label) {
  let picture = place.querySelector("svg");
  if (!picture) {
    picture = draw("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", preserveAspectRatio: "none" });
    place.append(picture);
  }
  picture.setAttribute("aria-label", label);
  return picture;
}

const level = (y, kind) => draw("line", { x1: 0, x2: WIDTH, y1: y, y2: y, class: kind });

const nice = (value) => {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, value)));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((step) => step >= value) || 1;
};

// Requests a second, the newest on the right; each bar stands for `seconds`.
export function rateChart(place, rates, seconds) {
  const height = 120;
  const most = nice(Math.max(1, ...rates));
  const span = rates.length * seconds;
  const now = number(Math.round(rates.at(-1) ?? 0));
  const picture = frame(place, height, `Requests a second over the last ${span} seconds, now ${now}`);
  const step = WIDTH / Math.max(1, rates.length);
  const bars = rates.map((rate, index) => {
    const tall = (rate / most) * (height - 4);
    const [x, y, width] = [(index + 0.14) * step, height - tall, 0.72 * step].map((value) => value.toFixed(2));
    return draw("rect", { x, y, width, height: tall.toFixed(2), rx: 1, class: "bar" });
  });
  picture.replaceChildren(level(4, "grid"), level(height, "ground"), ...bars);
  let mark = place.querySelector(".mark");
  if (!mark) place.append((mark = make("span", { class: "mark" })));
  setText(mark, number(most));
  scale(place, [`${span} s ago`, "now"]);
}

// How sure the router was.
export function histogram(place, edges, counts) {
  const height = 150;
  const all = counts.reduce((sum, value) => sum + value, 0);
  const most = Math.max(1, ...counts);
  const above = counts.slice(-1)[0] / Math.max(1, all);
  const picture = frame(place, height, `Confidence of ${count(all, "decision")}: ${Math.round(above * 100)} % above ${edges.at(-2)}`);
  const step = WIDTH / counts.length;
  const bars = counts.map((value, index) => {
    const tall = value ? Math.max(3, (value / most) * (height - 6)) : 0;
    const bar = draw("rect", { x: index * step + 5, y: height - tall, width: step - 10, height: tall, rx: 4, class: "bar" });
    bar.append(draw("title", {}));
    bar.firstChild.textContent = `${edges[index]} to ${edges[index + 1]}: ${number(value)}`;
    return bar;
  });
  picture.replaceChildren(level(height, "ground"), ...bars);
  scale(place, ["unsure", count(all, "decision"), "sure"]);
}

function scale(place, words) {
  let line = place.querySelector(".scale");
  if (!line) {
    line = make("p", { class: "scale" }, ...words.map(() => make("span")));
    place.append(line);
  }
  words.forEach((word, index) => setText(line.children[index], word));
}
