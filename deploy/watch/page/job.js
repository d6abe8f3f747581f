// A running job, fetched every two seconds. All that is shown comes from the last answer; nothing is extrapolated with
// the browser's clock, which may be wrong.

import { drawFlow, parts } from "./flow.js";
import { change, drawBars, drawLines, drawStrip, drawWait, short } from "./charts.js";
import { bytes, clock, count, duration, prose, share } from "./shapes.js";

const REFRESH_MS = 2000;
const LATELY_MS = 30000; // what the numbers in the flow are about
const LEAST_MS = 300000; // what a chart shows at least
const ALIKE = "all alike"; // in place of a partition
const MARKS = { live: "●", running: "●", held: "‖", idle: "○", "catching up": "»", starting: "…", standby: "…", stopping: "…", restarting: "…", done: "■", stopped: "■", failed: "■", unreachable: "?" };
const ENDED = ["done", "stopped", "failed"];
const at = id => document.getElementById(id);
let timer, last = null;

async function refresh() {
  clearTimeout(timer);
  try {
    const response = await fetch("v1/job", { cache: "no-store" });
    if (!response.ok) throw new Error(`the job answered ${response.status}`);
    last = await response.json();
    status(`As of ${clock(last.now_ms)}${seconds(last.now_ms)} UTC`);
    show(last);
  } catch (error) {
    const since = last ? `; values are those of ${clock(last.now_ms)}${seconds(last.now_ms)} UTC` : "";
    const ended = ENDED.includes(last?.state);
    status(ended ? `Ended${since}` : `No answer (${error.message})${since}`, true);
    if (!ended) {
      showState("unreachable", "The job does not answer: it has ended, is being replaced, or its machine cannot be reached.");
    }
  }
  timer = setTimeout(refresh, REFRESH_MS);
}

const ago = ms => (ms < 1000 ? "just now" : `${duration(ms).replace(/\.\d s/, " s")} ago`);
const seconds = ms => new Date(ms).toISOString().slice(16, 19);

function status(text, failed = false) {
  at("status").textContent = text;
  at("status").classList.toggle("failed", failed);
}

function showState(state, says) {
  at("state").hidden = false;
  at("state").dataset.state = at("says").dataset.state = state;
  at("state").querySelector(".mark").textContent = MARKS[state] ?? "";
  if (at("state-text").textContent !== state) at("state-text").textContent = state;
  at("says").replaceChildren(...prose(says));
  at("says").hidden = !says;
}

function show(job) {
  if (job.job === null) return showState(job.state, sentence(job));
  at("name").textContent = document.title = job.job.name;
  at("does").textContent = job.job.does.replace(`${job.job.name}: `, "");
  at("version").textContent = `Teacup ${job.job.version}, ${job.job.kind}`;
  showState(job.progress ?? job.state, sentence(job));
  const lately = between(job, job.now_ms - LATELY_MS, job.now_ms);
  const known = {
    ...job,
    rates: { ...lately.rates, rows: sum(lately.rates.matched, lately.rates.unmatched), matched: rateOf(lately.sums) ?? rateOf(job.totals) },
    marks: { left: job.last?.watermark_ms?.left ?? null, right: job.last?.watermark_ms?.right ?? null },
  };
  showWarnings(job);
  showFlow(known);
  showCharts(known);
  showPartitions(job);
  showLate(job);
  showWait(job);
}

function showPartitions({ lag }) {
  const rows = lag?.partitions ?? [], some = rows.filter(([, , left]) => left);
  at("partitions").hidden = !rows.length;
  at("partitions").querySelector("table").hidden = !some.length;
  at("partitions").querySelector("tbody").replaceChildren(...some.map(([topic, partition, left]) => {
    const row = document.createElement("tr");
    for (const [text, kind] of [[topic, ""], [partition, "number"], [count(left), "number"]]) Object.assign(row.insertCell(), { textContent: text, className: kind });
    return row;
  }));
  at("partitions").querySelector(".hint").textContent = some.length ? "" : "Every partition is read to its end.";
}

// What there is to say about the state, since when it lasts, and until when it will.
function sentence({ state, progress, says, since_ms: since, now_ms: now, lag }) {
  if (!says) return "";
  const plain = says.replace(/^holds since \S+: /, ""); // how long it lasts is said at the end
  const text = plain.endsWith(".") ? plain : `${plain}.`;
  if (progress === "catching up" && lag?.through_in_s != null) return `${text} Through in ${duration(lag.through_in_s * 1000)}.`;
  const lasts = Math.max(0, now - since);
  return state === "held" || progress === "idle" ? `${text} For ${duration(lasts)}.` : text;
}

// The sums of the points of a stretch of time, and how much that is a second.
function between({ points, step_ms: step, begun_ms: begun }, fromMs, toMs) {
  const first = Math.max(Math.floor(fromMs / step) * step, Math.floor(begun / step) * step);
  const s = Math.max(1, (toMs - Math.max(first, begun)) / 1000);
  const sums = {}, rates = {};
  for (const [name, values] of Object.entries(points)) {
    const inside = values.filter((value, i) => points.at_ms[i] >= first && value !== null);
    sums[name] = inside.reduce((total, value) => total + value, 0);
    rates[name] = sums[name] / s;
  }
  return { sums, rates };
}

const sum = (a, b) => (a === undefined && b === undefined ? undefined : (a ?? 0) + (b ?? 0));

function rateOf({ matched, unmatched }) {
  const rows = (matched ?? 0) + (unmatched ?? 0);
  return rows ? (matched ?? 0) / rows : null;
}

function showWarnings({ warnings, now_ms: now }) {
  at("warnings").hidden = !warnings.length;
  at("warnings").querySelector("ul").replaceChildren(...warnings.map(({ text, last_ms: lastMs, times, over }) => {
    const item = document.createElement("li"), small = document.createElement("small");
    item.append(...prose(text.endsWith(".") ? `${text} ` : `${text}. `));
    small.textContent = `${ago(now - lastMs)}${times > 1 ? `, ${count(times)} times` : ""}${over ? ", over" : ""}`;
    item.append(small);
    return item;
  }));
}

function showFlow(job) {
  const flow = parts(job);
  const label = `Flow: ${flow.boxes.map(({ name, big, small }) => [name, big, small].filter(Boolean).join(" ")).join("; ")}`;
  drawFlow(at("flow").querySelector(".chart"), flow, label);
  const { last: batch, lag, totals, settings } = { ...job, settings: job.job.settings };
  const rows = (totals.matched ?? 0) + (totals.unmatched ?? 0);
  const read = allRead(job);
  const behind = read ? 0 : job.state === "held" && job.marks.left !== null ? job.now_ms - job.marks.left : batch?.behind_ms;
  facts([
    ["Behind now", behind == null ? null : duration(behind)],
    ["Held by", job.state === "held" ? job.reason.replaceAll("_", " ") : read ? "nobody" : batch?.held_by ? `${batch.held_by}${job.waiting ? ` (${job.waiting.reason.replaceAll("_", " ")})` : ""}` : null],
    ["Left to read", lag ? `${count(lag.records)} records` : null],
    [batch ? `Batch ${batch.number.toLocaleString("en")}` : "Last batch", batch ? `${ago(job.now_ms - batch.at_ms)}, took ${duration((batch.seconds ?? 0) * 1000)}` : "none yet"],
    ["Rows since the start", rows ? `${count(rows)}, ${share((totals.matched ?? 0) / rows)} matched` : null],
    ["Set aside since the start", totals.unjoined === undefined && totals.dead_letter === undefined ? null : `unjoined ${count(totals.unjoined ?? 0)}, dead letters ${count(totals.dead_letter ?? 0)}`],
    ["Stored since the start", totals.stored === undefined ? null : count(totals.stored)],
    ["Duplicates since the start", totals.dropped && job.job.kind === "dedup" ? count(totals.dropped) : null],
    ["Interval", settings.after_ms !== undefined ? `${short(settings.before_ms)} before, ${short(settings.after_ms)} after` : null],
    ["Started again", job.starts_ms.length > 1 ? `at ${clock(job.starts_ms.at(-1))}` : null],
    ["Runs for", duration(job.now_ms - job.begun_ms)],
  ]);
}

// Whether all of left is read, or of whatever else a job without a left reads: then it is not behind, as in its metric.
function allRead({ lag, job }) {
  const topics = Object.entries(lag?.topics ?? {}), left = topics.filter(([topic]) => job.sides[topic] === "left");
  const mine = left.length ? left : topics;
  return mine.length > 0 && mine.every(([, records]) => records === 0);
}

function facts(pairs) {
  at("facts").replaceChildren(...pairs.filter(([, text]) => text !== null).map(([name, text]) => {
    const pair = document.createElement("div");
    pair.append(Object.assign(document.createElement("dt"), { textContent: name }), Object.assign(document.createElement("dd"), { textContent: text }));
    return pair;
  }));
}

function showCharts(job) {
  const { points, step_ms: step, now_ms: nowMs, begun_ms: begun } = job;
  const fromMs = Math.min(job.from_ms, nowMs - LEAST_MS);
  const { at: times, of } = filled(points, step, fromMs, nowMs);
  const width = i => Math.max(1, (Math.min(times[i] + step, nowMs) - Math.max(times[i], begun)) / 1000);
  const perSecond = name => of(name, 0).map((value, i) => (width(i) < step / 2000 ? null : value / width(i)));
  const middle = times.map(ms => Math.min(ms + step / 2, nowMs));
  const draw = (id, kind, lines, text) => drawLines(shown(id).querySelector(".chart"), { at: middle, lines, starts: job.starts_ms, fromMs, nowMs, kind, label: text });
  const value = (id, text, small = "") => {
    const box = at(id).querySelector(".value"), note = document.createElement("small");
    note.textContent = small ? ` ${small}` : "";
    box.replaceChildren(text, note);
  };

  const behind = side => of(`${side}_ms`).map((ms, i) => (ms === null ? null : Math.max(0, Math.min(times[i] + step, nowMs) - ms)));
  if (has(points, "left_ms") || has(points, "right_ms")) {
    draw("watermarks", "duration", [{ name: "right", tone: "right broad", values: behind("right") }, { name: "left", tone: "left", values: behind("left") }],
      `Watermarks behind the clock: left ${duration(newest(behind("left")))}, right ${duration(newest(behind("right")))}`);
    showHolders(job, fromMs);
  }
  if (has(points, "records")) {
    const sides = has(points, "right") ? [["left", "left"], ["right", "right"]] : has(points, "left") ? [["left", "left"]] : [["records", "records"]];
    value("rate", `${count(job.rates.records ?? 0)}/s`, sides.length > 1 ? `left ${count(job.rates.left ?? 0)}, right ${count(job.rates.right ?? 0)}` : "");
    draw("rate", "count", sides.map(([name, tone]) => ({ name, tone, values: perSecond(name), area: true })), `Records per second, now ${count(job.rates.records ?? 0)}`);
  }
  if (has(points, "latency_ms")) {
    const p50 = of("latency_ms"), p99 = of("latency_p99_ms");
    value("latency", duration(newest(p50)), `p50; p99 ${duration(newest(p99))}`);
    draw("latency", "duration", [{ name: "p99", tone: "plain", values: p99 }, { name: "p50", tone: "out", values: p50, area: true }],
      `Latency, last p50 ${duration(newest(p50))}, p99 ${duration(newest(p99))}`);
  } else if (has(points, "behind_ms")) {
    const values = of("behind_ms");
    value("latency", duration(newest(values)), "behind the clock");
    draw("latency", "duration", [{ name: "latency", tone: "out", values, area: true }], `Latency, last ${duration(newest(values))}`);
  }
  if (has(points, "matched") || has(points, "unmatched")) {
    const matched = of("matched"), unmatched = of("unmatched");
    const rate = matched.map((each, i) => rateOf({ matched: each, unmatched: unmatched[i] }));
    value("matches", share(job.rates.matched ?? newest(rate)), rateOf(job.totals) === null ? "" : `${share(rateOf(job.totals))} since the start`);
    draw("matches", "share", [{ name: "matched", tone: "out", values: rate }], `Match rate, last ${share(newest(rate))}`);
  }
  if (has(points, "window_records") && newest(of("window_records")) !== null && !("storage" in job.job.settings)) {
    const records = of("window_records");
    value("window", count(newest(records)), bytes(newest(of("window_bytes"))));
    draw("window", "count", [{ name: "records", tone: "right", values: records, area: true }], `Records in the window, last ${count(newest(records))}`);
  }
}

const has = (points, name) => points[name]?.some(value => value !== null) ?? false;
const newest = values => values.findLast(value => value !== null) ?? null;

function shown(id) {
  at(id).hidden = false;
  return at(id);
}

// Points of every ten seconds, also of those without a batch.
function filled(points, step, fromMs, nowMs) {
  const known = new Map(points.at_ms.map((ms, i) => [ms, i]));
  const times = [];
  for (let ms = Math.floor(fromMs / step) * step; ms <= nowMs; ms += step) times.push(ms);
  const of = (name, missing = null) => times.map(ms => points[name]?.[known.get(ms)] ?? missing);
  return { at: times, of };
}

function showHolders({ held, now_ms: nowMs, job }, fromMs) {
  const lasted = new Map();
  for (const [begin, end, who] of held) lasted.set(who, (lasted.get(who) ?? 0) + end - begin);
  const most = [...lasted].sort((a, b) => b[1] - a[1]);
  const isTopic = who => Object.keys(job.sides).some(topic => who.includes(topic));
  const topics = most.filter(([who]) => isTopic(who));
  const tones = new Map(most.map(([who]) => [who, isTopic(who) ? `holder-${Math.min(topics.findIndex(([each]) => each === who), 3)}` : who === ALIKE ? "holder-3" : "holder-held"]));
  const whole = Math.max(1, most.reduce((total, [, ms]) => total + ms, 0));
  drawStrip(at("watermarks").querySelector(".strip"), { held, tones, fromMs, nowMs,
    label: `Held by ${most.slice(0, 5).map(([who, ms]) => `${who} ${share(ms / whole)}`).join(", ") || "nobody"}` });
  const few = most.slice(0, 5), others = most.slice(5);
  if (others.length) few.push([`${others.length} others`, others.reduce((total, [, ms]) => total + ms, 0)]);
  at("watermarks").querySelector(".holders").replaceChildren(...few.map(([who, ms]) => {
    const item = document.createElement("li"), small = document.createElement("small");
    item.className = tones.get(who) ?? "holder-3";
    small.textContent = ` ${share(ms / whole)}`;
    item.append(who, small);
    return item;
  }));
}

function showLate({ late, totals, job, points }) {
  const records = (totals.late_left ?? 0) + (totals.late_right ?? 0);
  if (totals.late_left === undefined && totals.late_right === undefined) return;
  const card = shown("late");
  card.querySelector(".value").textContent = records ? count(records) : "none";
  const bounds = [...new Set([...(late.left ?? []), ...(late.right ?? [])].map(([ms]) => ms))].sort((a, b) => (a ?? Infinity) - (b ?? Infinity));
  const of = (side, ms) => late[side]?.find(([bound]) => bound === ms)?.[1] ?? 0;
  const bars = bounds.map(ms => ({ name: ms === null ? "more" : `≤ ${short(ms)}`, values: [["left", of("left", ms)], ["right", of("right", ms)]] }));
  drawBars(card.querySelector(".chart"), bars, `Late records by lateness: ${bars.map(bar => `${bar.name}: ${bar.values[0][1] + bar.values[1][1]}`).join(", ") || "none"}`);
  const { left_disorder_ms: left, right_disorder_ms: right } = job.settings;
  const seen = side => {
    const most = (points[`disorder_${side}`] ?? []).reduce((most, ms) => Math.max(most, ms ?? 0), -1);
    return most < 0 ? "" : `, at most ${short(most)} seen in the last hour`;
  };
  card.querySelector(".hint").textContent = left === undefined ? ""
    : `Disorder of left: ${short(left)} allowed${seen("left")}. Of right: ${short(right)} allowed${seen("right")}.`;
}

const NOTICED = 0.00005; // a smaller part of left is not worth a number
const hardly = part => (part ? "hardly anything" : "nothing");
const NAMED_MS = [500, 1000, 2000, 5000, 10000, 20000, 60000, 300000];

function showWait({ wait_curve: curve, job, points }) {
  if (curve === null) return;
  const card = shown("wait"), { settings } = job;
  const parts = { chart: card.querySelector(".chart"), key: card.querySelector(".key"), details: card.querySelector("details") };
  const empty = !curve.rows || !curve.less.length;
  for (const part of Object.values(parts)) part.hidden = empty;
  const put = (name, text) => { card.querySelector(name).textContent = text; };
  if (empty) {
    put(".sentence", settings.idle === "hold" ? "No curve with idle: hold: the times of the topics do not follow the clock."
      : "No curve yet: it is drawn while the join follows its topics, not while it catches up.");
    return put(".hint", "");
  }
  // Nobody can wait less than not at all.
  const slack = Math.max(settings.right_disorder_ms ?? 0, settings.producer_delay_ms ?? 0);
  // Nor is anything known of what happens between two batches.
  const total = name => (points[name] ?? []).reduce((sum, value) => sum + (value ?? 0), 0);
  const apart = Math.max(1000 * total("seconds") / Math.max(1, total("batches")), settings.trigger_ms ?? 0);
  const least = (ms, part, most) => (ms <= most ? part : null);
  const less = curve.less.filter(([ms]) => ms >= apart)
    .map(([ms, waiting, after]) => [ms, least(ms, waiting, slack), least(ms, after, settings.after_ms ?? 0)])
    .filter(([, waiting, after]) => waiting !== null || after !== null);
  const most = curve.more.at(-1)[2];
  const gain = most < NOTICED ? null : curve.more.find(([, , after]) => after >= 0.9 * most);
  const loss = less.find(([ms]) => ms >= 2000) ?? less.at(-1);
  const lost = loss && (loss[1] ?? loss[2]);
  put(".sentence", [
    gain ? `${short(gain[0])} more would match about ${share(gain[2])} more of left` : `Waiting longer would match ${hardly(most)} more`,
    loss ? `${short(loss[0])} less would lose ${lost < NOTICED ? hardly(lost) : `at most ${share(lost)}`}` : null,
  ].filter(Boolean).join("; ") + ".");
  drawWait(parts.chart, { less, more: curve.more, label: `Wait curve. ${card.querySelector(".sentence").textContent}` });
  const rows = [...[...less].reverse().map(each => [-1, each]), ...curve.more.map(each => [1, each])].filter(([, [ms]]) => NAMED_MS.includes(ms));
  card.querySelector("tbody").replaceChildren(...rows.map(([sign, [ms, waiting, after]]) => {
    const row = document.createElement("tr");
    for (const text of [`${short(ms)} ${sign > 0 ? "more" : "less"}`, ...[waiting, after].map(part => (part === null ? "–" : change(sign * part)))]) row.insertCell().textContent = text;
    return row;
  }));
  const waits = curve.waited_ms["0.5"] != null ? `Left waits ${short(curve.waited_ms["0.5"])} or less in half of the cases` : "";
  const lags = curve.lag_ms["0.99"] != null ? `99 % of the right records that matched were readable ${curve.lag_ms["0.99"] ? `within ${short(curve.lag_ms["0.99"])} after` : "by"} left's time` : "";
  const out = curve.left_out ? `${count(curve.left_out)} matches of a backlog are left out` : "";
  const coarse = apart > 2000 ? `A batch takes ${short(Math.round(apart / 1000) * 1000)}: nothing finer can be told of less waiting` : "";
  put(".hint", `${[waits, lags, coarse, `From ${count(curve.rows)} left records; what would be gained is estimated from a sample`, out].filter(Boolean).join(". ")}.`);
}

addEventListener("resize", () => { if (last?.job) show(last); });
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : refresh()));
refresh();
