// The flow of a job, as in the documents, with live numbers: boxes and arrows, side by side, or in two columns on a
// phone. What a kind of job has is a list of boxes and a list of arrows.

import { bytes, clock, count, element, share } from "./shapes.js";

const BOX = 84, GAP = 58, LINE = 19;

// The boxes: place [column, row], tone, name, the number that matters, and a line below it. Arrows: from, to, tone, text.
export function parts(job) {
  const { kind, settings, sides } = job.job;
  const last = job.last ?? {};
  const topic = side => Object.keys(sides).find(name => sides[name] === side) ?? side;
  const mark = side => job.marks[side] === null ? "" : `up to ${clock(job.marks[side], false)}${seconds(job.marks[side])}`;
  const { rates } = job;
  const output = { at: [2, 0], tone: "out", name: "Output", big: per(rates.rows), small: settings.output ?? "" };
  if (kind === "feeder") {
    return {
      boxes: [
        { at: [0, 0], tone: "right", name: "Right", big: per(rates.records), small: topic("right") },
        { at: [1, 0], tone: "plain", name: "Feeder", big: per(rates.records), small: last.newest_ms ? `newest ${clock(last.newest_ms, false)}${seconds(last.newest_ms)}` : "" },
        { at: [2, 0], tone: "out", name: "Storage", big: per(rates.stored), small: settings.output ?? "" },
      ],
      arrows: [[0, 1, "right", ""], [1, 2, "out", ""]],
    };
  }
  if (kind === "dedup") {
    return {
      boxes: [
        { at: [0, 0], tone: "left", name: "Source", big: per(rates.records), small: topic("source") },
        { at: [1, 0], tone: "plain", name: "Deduplicate", big: `${number(last.known)} ids known`, small: `${per(rates.dropped)} dropped` },
        { ...output, big: per(rates.written) },
      ],
      arrows: [[0, 1, "left", ""], [1, 2, "out", ""]],
    };
  }
  if (!("rows" in last) && !("left_disorder_ms" in settings)) {
    return {
      boxes: [
        { at: [0, 0], tone: "left", name: "Input", big: per(rates.records), small: Object.keys(sides).join(", ") },
        { at: [1, 0], tone: "out", name: "Output", big: per(rates.unjoined), small: settings.output ?? "" },
      ],
      arrows: [[0, 1, "left", ""]],
    };
  }
  const lookup = kind === "lookup-join" || settings.right_is_stored;
  const left = { at: [0, 0], tone: "left", name: "Left", big: per(rates.left), small: topic("left"), more: mark("left") };
  const right = lookup
    ? { at: [0, 1], tone: "right", name: "Right, stored", big: "by the feeder", small: settings.storage ?? "", more: mark("right") }
    : { at: [0, 1], tone: "right", name: "Right", big: per(rates.right), small: topic("right"), more: mark("right") };
  const match = { at: [1, 0], tone: "out", name: lookup ? "Look up" : "Match", big: rates.matched === null ? "–" : share(rates.matched), small: "of left matched" };
  const window = { at: [1, 1], tone: "right", name: lookup ? "Storage" : "Window", big: lookup ? "by key" : number(last.window_records), small: lookup || last.window_bytes === undefined ? "right records" : `records, ${bytes(last.window_bytes)}` };
  const aside = { unjoined: rates.unjoined ?? 0, dead: rates.dead_letter ?? 0 };
  const side = { at: [2, 1], tone: "plain", name: "Set aside", big: per(aside.unjoined + aside.dead), small: `unjoined ${per(aside.unjoined)}`, more: `dead letters ${per(aside.dead)}` };
  return {
    boxes: [left, right, match, window, output, side],
    arrows: [[0, 2, "left", ""], [1, 3, "right", ""], [3, 2, "right", "candidates"], [2, 4, "out", "rows"], [3, 5, "plain", lookup ? "" : "expired"]],
  };
}

const number = value => (value === undefined || value === null ? "–" : count(value));
const per = rate => (rate === null || rate === undefined ? "–" : `${count(rate)}/s`);
const seconds = ms => new Date(ms).toISOString().slice(16, 19);

export function drawFlow(box, { boxes, arrows }, label) {
  const width = Math.max(280, box.clientWidth), wide = width >= 620;
  const columns = 1 + Math.max(...boxes.map(({ at }) => at[0])), rows = 1 + Math.max(...boxes.map(({ at }) => at[1]));
  const high = BOX + (boxes.some(({ more }) => more) ? LINE : 0);
  const across = wide ? columns : rows, down = wide ? rows : columns;
  const gap = wide ? Math.min(110, width * 0.1) : 14;
  const size = (width - 2 - gap * (across - 1)) / across;
  const place = ({ at: [column, row] }) => {
    const [x, y] = wide ? [column, row] : [row, column];
    return { x: 1 + x * (size + gap), y: 1 + y * (high + (wide ? 44 : GAP - 18)) };
  };
  const height = 2 + down * high + (down - 1) * (wide ? 44 : GAP - 18);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  for (const [from, to, tone, text] of arrows) svg.append(...arrow(place(boxes[from]), place(boxes[to]), size, high, tone, text, wide));
  for (const each of boxes) svg.append(...drawn(each, place(each), size, high));
  box.replaceChildren(svg);
  for (const text of svg.querySelectorAll("text.fits")) fit(text, size - 24);
}

function drawn({ tone, name, big, small, more }, { x, y }, size, high) {
  const lines = [["name", name, 24], ["big", big, 49], ["small", small, 69], ["small", more, 69 + LINE]];
  return [
    element("rect", { class: `box ${tone}`, x, y, width: size, height: high, rx: 8 }),
    ...lines.filter(([, text]) => text).map(([kind, text, at]) => element("text", { class: `${kind} ${tone} fits`, x: x + 12, y: y + at }, text)),
  ];
}

// A name that is too long loses its middle; all of it stays readable by title.
function fit(text, room) {
  const whole = text.textContent;
  for (let length = whole.length - 1; text.getComputedTextLength() > room && length > 4; length -= 1) {
    const half = Math.ceil(length / 2);
    text.textContent = `${whole.slice(0, half)}…${whole.slice(whole.length - (length - half))}`;
  }
  if (text.textContent !== whole) text.append(element("title", {}, whole));
}

function arrow(from, to, size, high, tone, text, wide) {
  const sideways = Math.abs(from.y - to.y) < 1;
  let x1, y1, x2, y2, dx, dy;
  if (sideways) {
    const right = to.x > from.x;
    [x1, x2] = right ? [from.x + size, to.x] : [from.x, to.x + size];
    y1 = y2 = from.y + high / 2;
    [dx, dy] = [right ? 1 : -1, 0];
  } else {
    const below = to.y > from.y;
    [y1, y2] = below ? [from.y + high, to.y] : [from.y, to.y + high];
    x1 = x2 = from.x + size / 2;
    [dx, dy] = [0, below ? 1 : -1];
  }
  const head = `M${x2} ${y2}L${x2 - dx * 9 - dy * 4.5} ${y2 - dy * 9 - dx * 4.5}L${x2 - dx * 9 + dy * 4.5} ${y2 - dy * 9 + dx * 4.5}Z`;
  const made = [
    element("path", { class: `edge ${tone}`, d: `M${x1} ${y1}L${x2 - dx * 6} ${y2 - dy * 6}` }),
    element("path", { class: `head ${tone}`, d: head }),
  ];
  const room = sideways ? Math.abs(x2 - x1) : 200;
  if (text && room > 60) {
    const at = sideways ? { x: (x1 + x2) / 2, y: y1 - 9, "text-anchor": "middle" } : { x: x1 + 10, y: (y1 + y2) / 2 + 4 };
    made.push(element("text", { class: "on-edge", ...at }, text));
  }
  return made;
}
