// What every page writes and draws: durations, counts and clock times as text, scales, elements of an SVG.

const NS = "http://www.w3.org/2000/svg";

export function element(name, attributes, text) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// A text with `code` in it, as nodes
export function prose(text) {
  const parts = text.split("`");
  return parts.map((part, i) => (i % 2 && i < parts.length - 1 ? Object.assign(document.createElement("code"), { textContent: part }) : part));
}

export function duration(ms) {
  if (ms === null || ms === undefined) return "unknown";
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

// 1,234 or 12.3 k or 4.56 M
export function count(number) {
  if (number === null || number === undefined) return "unknown";
  const size = Math.abs(number);
  for (const [unit, name] of [[1e9, " G"], [1e6, " M"], [1e4, " k"]]) {
    if (size >= unit) return `${Number((number / (name === " k" ? 1e3 : unit)).toPrecision(3))}${name}`;
  }
  return (size >= 100 || Number.isInteger(number) ? Math.round(number) : Number(number.toPrecision(2))).toLocaleString("en");
}

export function bytes(number) {
  if (number === null || number === undefined) return "unknown";
  for (const [unit, name] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (number >= unit) return `${Number((number / unit).toPrecision(3))} ${name}`;
  }
  return `${Math.round(number)} B`;
}

// A share as per cent, with as many digits as say something
export function share(part) {
  if (part === null || part === undefined) return "unknown";
  const percent = Math.abs(part) * 100, sign = part < 0 && percent > 0 ? "−" : "";
  if (percent === 0) return "0 %";
  if (percent < 0.01) return `${sign}< 0.01 %`;
  return `${sign}${percent < 1 ? Number(percent.toPrecision(1 + (percent >= 0.1))) : percent.toFixed(1)} %`;
}

export function durationScale(most) {
  const steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400]
    .map(s => s * 1000);
  return scale(most, steps.find(each => each * 3 >= most) ?? Math.ceil(most / 3 / 86400000) * 86400000);
}

export function countScale(most) {
  const power = 10 ** Math.floor(Math.log10(most / 3 || 1));
  return scale(most, [1, 2, 5, 10].map(each => each * power).find(each => each * 3 >= most));
}

function scale(most, step) {
  const size = Math.max(1, Math.ceil(most / step - 1e-9));
  return { top: step * size, ticks: Array.from({ length: size + 1 }, (_, i) => i * step) };
}

// Shows what is at the pointer, and a line there. The same is elsewhere for those who use no pointer.
export function readout(box, svg, { top, floor }, near) {
  const text = Object.assign(document.createElement("p"), { className: "readout", hidden: true });
  text.setAttribute("aria-hidden", "true");
  const line = element("line", { class: "cursor", y1: top, y2: floor, visibility: "hidden" });
  box.append(text);
  svg.append(line);
  svg.addEventListener("pointermove", event => {
    const found = near(event.clientX - svg.getBoundingClientRect().left);
    if (!found) return;
    text.textContent = found.text;
    text.hidden = false;
    for (const end of ["x1", "x2"]) line.setAttribute(end, found.x);
    line.setAttribute("visibility", "visible");
  });
  svg.addEventListener("pointerleave", () => {
    text.hidden = true;
    line.setAttribute("visibility", "hidden");
  });
}
