// Charts over the last hour, bars, and the wait curve. All get what to draw, and a text for those who do not see it.

import { clock, count, countScale, duration, durationScale, element, readout, share } from "./shapes.js";

const EDGE = { left: 68, right: 10, top: 10, bottom: 20 };
const SCALES = {
  duration: { scale: durationScale, tick: ms => (ms ? duration(ms).replace(".0 s", " s") : "0"), least: 1000 },
  count: { scale: countScale, tick: count, least: 1 },
  share: { scale: shareScale, tick: part => `${Math.round(part * 100)} %`, least: 0 },
};

// Up to all, from the largest of a few that all values are above: what changes can be seen.
function shareScale(_, least) {
  const bottom = [0.9, 0.8, 0.5].find(each => least >= each) ?? 0;
  return { bottom, top: 1, ticks: [bottom, (bottom + 1) / 2, 1] };
}

// lines: [{ name, tone, values, area }], a value for each of `at`; null where there was none, which leaves a gap
// starts: when the job was started, each a line
export function drawLines(box, { at, lines, starts, fromMs, nowMs, kind, label }) {
  const { width, height, svg } = canvas(box, label);
  const { scale, tick, least } = SCALES[kind];
  const values = lines.flatMap(line => line.values).filter(value => value !== null);
  const y = axis(svg, scale(Math.max(least, most(values)), Math.min(1, ...values)), tick, width, height);
  const x = across(fromMs, nowMs, width);
  const floor = height - EDGE.bottom;
  const middleMs = (fromMs + nowMs) / 2;
  for (const [ms, anchor, text] of [[fromMs, "start", clock(fromMs)], [middleMs, "middle", clock(middleMs)], [nowMs, "end", "now"]]) {
    svg.append(element("text", { class: "axis", x: x(ms), y: height - 4, "text-anchor": anchor }, text));
  }
  for (const ms of starts) {
    const mark = element("line", { class: "start", x1: x(ms), x2: x(ms), y1: EDGE.top, y2: floor });
    mark.append(element("title", {}, `started at ${clock(ms)}`));
    svg.append(mark);
  }
  for (const line of lines) {
    for (const stretch of stretches(at, line.values)) {
      const d = "M" + stretch.map(([ms, value]) => `${x(ms).toFixed(1)},${y(value).toFixed(1)}`).join("L");
      const [first, last] = [stretch[0][0], stretch.at(-1)[0]];
      if (line.area) svg.append(element("path", { class: `area ${line.tone}`, d: `${d}L${x(last)},${floor}L${x(first)},${floor}Z` }));
      if (stretch.length === 1) svg.append(element("circle", { class: `bar ${line.tone}`, cx: x(first), cy: y(stretch[0][1]), r: 2 }));
      else svg.append(element("path", { class: `line ${line.tone}`, d }));
    }
  }
  readout(box, svg, { top: EDGE.top, floor }, pointer => {
    const near = at.reduce((best, ms, i) => (best === -1 || Math.abs(x(ms) - pointer) < Math.abs(x(at[best]) - pointer) ? i : best), -1);
    if (near < 0) return null;
    const said = lines.filter(line => line.values[near] !== null).map(line => `${line.name} ${tick(line.values[near])}`);
    return { x: x(at[near]), text: `${clock(at[near])}: ${said.join(", ") || "no batch"}` };
  });
}

// The largest value, unless a few values, as while a backlog is read, are far above all others: those leave at the top.
function most(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const usual = sorted[Math.floor(0.9 * (sorted.length - 1))] ?? 0, largest = sorted.at(-1) ?? 0;
  return usual > 0 && largest > 5 * usual ? 1.5 * usual : largest;
}

// held: [from, to, who]; tones: who -> class
export function drawStrip(box, { held, tones, fromMs, nowMs, label }) {
  const { width, height, svg } = canvas(box, label);
  const x = across(fromMs, nowMs, width);
  svg.append(element("rect", { class: "nobody", x: EDGE.left, y: 0, width: width - EDGE.left - EDGE.right, height, rx: 3 }));
  for (const [begin, end, who] of held) {
    const rect = element("rect", { class: tones.get(who), x: x(begin), y: 0, width: Math.max(0.5, x(end) - x(begin)), height });
    rect.append(element("title", {}, `${clock(begin)}: ${who}`));
    svg.append(rect);
  }
}

// bars: [{ name, values: [[tone, count]] }]
export function drawBars(box, bars, label) {
  const line = 22, width = Math.max(220, box.clientWidth), height = bars.length * line + 4;
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  const most = Math.max(1, ...bars.map(bar => bar.values.reduce((sum, [, value]) => sum + value, 0)));
  const room = width - 88 - 58;
  bars.forEach((bar, i) => {
    const y = i * line;
    svg.append(element("text", { class: "bar-name", x: 80, y: y + 15, "text-anchor": "end" }, bar.name));
    let x = 88;
    for (const [tone, value] of bar.values) {
      const length = value ? Math.max(2, room * value / most) : 0;
      if (length) svg.append(element("rect", { class: `bar ${tone}`, x, y: y + 4, width: length, height: 14, rx: 2 }));
      x += length;
    }
    svg.append(element("text", { class: "bar-count", x: x + 6, y: y + 15 }, count(bar.values.reduce((sum, [, value]) => sum + value, 0))));
  });
  box.replaceChildren(svg);
}

// The change of the match rate by how much longer, or less long, left waits. Durations are evenly spaced as they are
// told apart, about logarithmic. What is lost at once by waiting far less would hide what there is to gain: the scale
// follows the gain, and a line that falls further leaves at the bottom.
export function drawWait(box, { less, more, label }) {
  const { width, height, svg } = canvas(box, label);
  const all = [...[...less].reverse().map(([ms, waiting, after]) => [-ms, waiting === null ? null : -waiting, after === null ? null : -after]), [0, 0, 0], ...more];
  const best = Math.max(0.0005, ...more.flatMap(([, waiting, after]) => [waiting, after]));
  const worst = Math.max(0.0005, ...less.flatMap(([, waiting, after]) => [waiting ?? 0, after ?? 0]));
  const soon = Math.max(0, ...less.filter(([ms]) => ms <= 2000).flatMap(([, waiting, after]) => [waiting ?? 0, after ?? 0]));
  const top = best * 1.15, bottom = -Math.min(worst * 1.1, Math.max(top * 1.5, soon * 2, 0.002));
  const floor = height - EDGE.bottom;
  const x = i => EDGE.left + (width - EDGE.left - EDGE.right) * i / (all.length - 1);
  const y = part => EDGE.top + (floor - EDGE.top) * (top - Math.max(part, bottom)) / (top - bottom);
  const now = less.length;
  for (const part of ticks(bottom, top)) {
    svg.append(element("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y(part), y2: y(part) }));
    svg.append(element("text", { class: "axis", x: EDGE.left - 8, y: y(part) + 4, "text-anchor": "end" }, part ? `${part > 0 ? "+" : "−"}${Number((Math.abs(part) * 100).toPrecision(2))} %` : "0"));
  }
  svg.append(element("line", { class: "now", x1: x(now), x2: x(now), y1: EDGE.top, y2: floor }));
  const named = [now, ...all.keys()].filter((i, place) => place === 0 || i !== now).filter(i => i === now || [1, 2, 5, 10, 20, 60, 120, 300, 600].includes(Math.abs(all[i][0]) / 1000));
  const taken = [];
  for (const i of named) {
    const text = i === now ? "now" : `${all[i][0] > 0 ? "+" : "−"}${short(Math.abs(all[i][0]))}`;
    const middle = Math.min(x(i), width - EDGE.right - 22);
    if (taken.some(other => Math.abs(other - middle) < 62)) continue;
    taken.push(middle);
    svg.append(element("text", { class: "axis", x: middle, y: height - 4, "text-anchor": "middle" }, text));
  }
  for (const [column, tone] of [[1, "waiting broad"], [2, "after"]]) {
    const line = all.map((point, i) => [i, point[column]]).filter(([, part]) => part !== null);
    const first = line.findLastIndex(([i, part]) => i <= now && part <= bottom);
    const d = "M" + line.slice(Math.max(first, 0)).map(([i, part]) => `${x(i).toFixed(1)},${y(part).toFixed(1)}`).join("L");
    svg.append(element("path", { class: `line ${tone}`, d }));
  }
  readout(box, svg, { top: EDGE.top, floor }, pointer => {
    const near = all.reduce((found, _, i) => (Math.abs(x(i) - pointer) < Math.abs(x(found) - pointer) ? i : found), 0);
    const [ms, waiting, after] = all[near];
    const text = ms === 0 ? "as now" : `${short(Math.abs(ms))} ${ms > 0 ? "more" : "less"}: ${[waiting, after].filter(part => part !== null).map(change).join(" / ")}`;
    return { x: x(near), text };
  });
}

export const short = ms => duration(ms).replace(".0 s", " s");
export const change = part => (part > 0 ? `+${share(part)}` : share(part));

function ticks(bottom, top) {
  const power = 10 ** Math.floor(Math.log10((top - bottom) / 3));
  const step = [1, 2, 5, 10].map(each => each * power).find(each => each * 4 >= top - bottom);
  const found = [];
  for (let i = Math.ceil(bottom / step); i * step <= top; i += 1) found.push(i * step);
  return found;
}

function canvas(box, label) {
  const width = Math.max(220, box.clientWidth), height = box.clientHeight;
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  box.replaceChildren(svg);
  return { width, height, svg };
}

function axis(svg, { bottom = 0, top, ticks: at }, tick, width, height) {
  const y = value => height - EDGE.bottom - (height - EDGE.top - EDGE.bottom) * Math.min(1, Math.max(0, value - bottom) / (top - bottom));
  for (const each of at) {
    svg.append(element("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y(each), y2: y(each) }));
    svg.append(element("text", { class: "axis", x: EDGE.left - 8, y: y(each) + 4, "text-anchor": "end" }, tick(each)));
  }
  return y;
}

const across = (fromMs, nowMs, width) => ms =>
  EDGE.left + (width - EDGE.left - EDGE.right) * Math.min(1, Math.max(0, (ms - fromMs) / Math.max(1, nowMs - fromMs)));

function stretches(at, values) {
  const found = [];
  let line = [];
  at.forEach((ms, i) => {
    if (values[i] === null) {
      if (line.length) found.push(line);
      line = [];
    } else {
      line.push([ms, values[i]]);
    }
  });
  if (line.length) found.push(line);
  return found;
}
