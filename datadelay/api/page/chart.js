// The delay over time as an SVG: a line through what was published, a band where it was unknown, and a dashed line
// that rises where no submission came in time to keep the value fresh.

const NS = "http://www.w3.org/2000/svg";
const EDGE = { left: 56, right: 10, top: 12, bottom: 22 };

export function duration(ms) {
  if (ms === null) return "unknown";
  const sign = ms < 0 ? "−" : "";
  const s = Math.abs(ms) / 1000;
  const whole = Math.floor(s);
  const two = (big, small, name, rest) => sign + (small ? `${big} ${name} ${small} ${rest}` : `${big} ${name}`);
  if (s < 10) return `${sign}${(Math.floor(s * 10) / 10).toFixed(1)} s`;
  if (s < 60) return `${sign}${whole} s`;
  if (s < 3600) return two(Math.floor(whole / 60), whole % 60, "min", "s");
  if (s < 86400) return two(Math.floor(whole / 3600), Math.floor((whole % 3600) / 60), "h", "min");
  return two(Math.floor(whole / 86400), Math.floor((whole % 86400) / 3600), "d", "h");
}

export function clock(ms, withDate) {
  const iso = new Date(ms).toISOString();
  return withDate ? `${iso.slice(5, 10)} ${iso.slice(11, 16)}` : iso.slice(11, 16);
}

// points: oldest first; silentMs: the age from which a value is stale
export function draw(box, points, { fromMs, nowMs, silentMs, label }) {
  const width = Math.max(200, box.clientWidth), height = Math.max(100, box.clientHeight);
  const lines = split(points, nowMs, silentMs);
  const delays = [...lines.known, ...lines.silent].flat().map(([, delay]) => delay);
  const scale = yScale(Math.max(1000, ...delays));
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
  readout(box, svg, points, { x, floor });
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

function yScale(most) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400].map(s => s * 1000);
  const step = steps.find(each => each * 3 >= most) ?? Math.ceil(most / 3 / 86400000) * 86400000;
  const count = Math.max(1, Math.ceil(most / step));
  return { top: step * count, ticks: Array.from({ length: count + 1 }, (_, i) => i * step) };
}

function readout(box, svg, points, { x, floor }) {
  const text = Object.assign(document.createElement("p"), { className: "readout", hidden: true });
  text.setAttribute("aria-hidden", "true"); // the table below has the same for those who use no pointer
  const line = element("line", { class: "cursor", y1: EDGE.top, y2: floor, visibility: "hidden" });
  box.append(text);
  svg.append(line);
  svg.addEventListener("pointermove", event => {
    const at = event.clientX - svg.getBoundingClientRect().left;
    const near = points.reduce((best, each) => !best || Math.abs(x(each.at_ms) - at) < Math.abs(x(best.at_ms) - at) ? each : best, null);
    if (!near) return;
    text.textContent = `${clock(near.at_ms, true)}: ${duration(near.delay_ms)}`;
    text.hidden = false;
    for (const end of ["x1", "x2"]) line.setAttribute(end, x(near.at_ms));
    line.setAttribute("visibility", "visible");
  });
  svg.addEventListener("pointerleave", () => {
    text.hidden = true;
    line.setAttribute("visibility", "hidden");
  });
}

function element(name, attributes, text) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
