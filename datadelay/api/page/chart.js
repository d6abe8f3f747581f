// The delay over time as an SVG: a line through what was published, a band where it was unknown, and a dashed line
// that rises where no submission came in time to keep the value fresh.

import { clock, duration, durationScale, element, readout } from "./shapes.js";

const EDGE = { left: 56, right: 10, top: 12, bottom: 22 };

// points: oldest first; silentMs: the age from which a value is stale
export function draw(box, points, { fromMs, nowMs, silentMs, label }) {
  const width = Math.max(200, box.clientWidth), height = Math.max(100, box.clientHeight);
  const lines = split(points, nowMs, silentMs);
  const delays = [...lines.known, ...lines.silent].flat().map(([, delay]) => delay);
  const scale = durationScale(Math.max(1000, ...delays));
  const x = ms => EDGE.left + (width - EDGE.left - EDGE.right) * Math.min(1, Math.max(0, (ms - fromMs) / (nowMs - fromMs)));
  const y = ms => height - EDGE.bottom - (height - EDGE.top - EDGE.bottom) * Math.max(0, ms) / scale.top;
  const floor = height - EDGE.bottom;
  const path = line => "M" + line.map(([at, delay]) => `${x(at).toFixed(1)},${y(delay).toFixed(1)}`).join("L");

  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const tick of scale.ticks) {
    svg.append(element("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y(tick), y2: y(tick) }));
    svg.append(element("text", { x: EDGE.left - 8, y: y(tick) + 4, "text-anchor": "end" }, tick ? duration(tick).replace(".0", "") : "0"));
  }
  const long = nowMs - fromMs > 86400000;
  svg.append(element("text", { x: EDGE.left, y: height - 5 }, clock(fromMs, long)));
  svg.append(element("text", { x: width - EDGE.right, y: height - 5, "text-anchor": "end" }, "now"));
  svg.append(element("text", { x: (EDGE.left + width - EDGE.right) / 2, y: height - 5, "text-anchor": "middle" },
    clock((fromMs + nowMs) / 2, long)));
  for (const [begin, end] of lines.gaps) {
    svg.append(element("rect", { class: "gap", x: x(begin), y: EDGE.top, width: Math.max(2, x(end) - x(begin)), height: floor - EDGE.top }));
  }
  for (const line of lines.known) {
    const [first, last] = [line[0][0], line.at(-1)[0]];
    svg.append(element("path", { class: "area", d: `${path(line)}L${x(last)},${floor}L${x(first)},${floor}Z` }));
    svg.append(element("path", { class: "value", d: path(line) }));
  }
  for (const line of lines.silent) svg.append(element("path", { class: "silent", d: path(line) }));
  const newest = points.at(-1);
  if (newest && newest.delay_ms !== null) {
    svg.append(element("circle", { class: "dot", cx: x(newest.at_ms), cy: y(newest.delay_ms), r: 4 }));
  }
  box.replaceChildren(svg);
  readout(box, svg, { top: EDGE.top, floor }, pointer => {
    const near = points.reduce((best, each) => !best || Math.abs(x(each.at_ms) - pointer) < Math.abs(x(best.at_ms) - pointer) ? each : best, null);
    return near && { x: x(near.at_ms), text: `${clock(near.at_ms, true)}: ${duration(near.delay_ms)}` };
  });
}

// known: stretches of [time, delay]; silent: rising ones; gaps: [begin, end] of unknown stretches
function split(points, nowMs, silentMs) {
  const known = [], silent = [], gaps = [];
  let line = [];
  const finish = () => { if (line.length) known.push(line); line = []; };
  points.forEach((point, i) => {
    const next = points[i + 1], end = next ? next.at_ms : nowMs;
    if (point.consumed_until_ms === null) {
      finish();
      if (gaps.at(-1)?.[1] === point.at_ms) gaps.at(-1)[1] = end;
      else gaps.push([point.at_ms, end]);
      return;
    }
    line.push([point.at_ms, point.delay_ms]);
    const grown = [end, end - point.consumed_until_ms];
    if (end - point.at_ms > silentMs) {
      finish();
      silent.push([[point.at_ms, point.delay_ms], grown]);
    } else if (!next || next.consumed_until_ms === null) {
      line.push(grown);
    }
  });
  finish();
  return { known, silent, gaps };
}
