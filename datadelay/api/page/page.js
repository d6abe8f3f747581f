// Every consumer and topic as a card, fetched every few seconds. All that is shown comes from the last answer of the
// API; nothing is extrapolated with the browser's clock, which may be wrong.

import { draw } from "./chart.js";
import { duration, prose } from "./shapes.js";

const REFRESH_MS = 3000;
const TOKEN = "teacup-delay-token";
const STATES = {
  unknown: { mark: "?", name: "unknown" },
  stale: { mark: "!", name: "stale" },
  ok: { mark: "●", name: "ok" },
  caught_up: { mark: "✓", name: "caught up" },
};
const at = id => document.getElementById(id);
const cards = new Map(); // "consumer topic" -> its data and its element
let timer, answered = "";

class Denied extends Error {}

async function get(path) {
  const token = sessionStorage.getItem(TOKEN);
  const response = await fetch(path, { headers: token ? { Authorization: `Bearer ${token}` } : {}, cache: "no-store" });
  if (response.status === 401 || response.status === 403) throw new Denied((await response.json()).detail);
  if (!response.ok) throw new Error(`the server answered ${response.status}`);
  return response.json();
}

async function refresh() {
  clearTimeout(timer);
  try {
    const { now, now_ms: nowMs, delays } = await get("v1/delays");
    showLogin(null);
    answered = now.slice(11, 19);
    status(`As of ${answered} UTC`);
    showTotals(delays);
    await showCards(delays, nowMs);
  } catch (error) {
    if (error instanceof Denied) {
      showLogin(error.message);
      return; // until somebody enters a token
    }
    status(`No answer (${error.message})${answered ? `; values are those of ${answered} UTC` : ""}`, true);
  }
  timer = setTimeout(refresh, REFRESH_MS);
}

function status(text, failed = false) {
  if (!failed) document.title = "Data delay";
  at("status").textContent = text;
  at("status").classList.toggle("failed", failed);
}

function showTotals(delays) {
  const items = Object.entries(STATES).map(([state, { mark, name }]) => {
    const count = delays.filter(delay => delay.state === state).length;
    const item = document.createElement("li");
    item.className = "badge";
    item.dataset.state = state;
    item.textContent = `${mark} ${count} ${name}`;
    item.hidden = count === 0;
    return item;
  });
  at("totals").replaceChildren(...items);
}

async function showCards(delays, nowMs) {
  const order = Object.keys(STATES);
  const worstFirst = (a, b) =>
    order.indexOf(a.state) - order.indexOf(b.state) || (b.delay_ms ?? 0) - (a.delay_ms ?? 0) ||
    a.consumer.localeCompare(b.consumer) || a.topic.localeCompare(b.topic);
  const present = new Set();
  let before = null;
  for (const delay of [...delays].sort(worstFirst)) {
    const key = `${delay.consumer} ${delay.topic}`;
    present.add(key);
    if (!cards.has(key)) cards.set(key, { element: newCard(), points: [], fetched: null, visible: true });
    const card = cards.get(key);
    card.delay = delay;
    fill(card);
    // moved only if the order changed, so that focus and open details are kept
    const place = before ? before.nextElementSibling : at("cards").firstElementChild;
    if (place !== card.element) at("cards").insertBefore(card.element, place);
    before = card.element;
  }
  for (const [key, card] of cards) {
    if (!present.has(key)) {
      watcher.unobserve(card.element);
      card.element.remove();
      cards.delete(key);
    }
  }
  filter();
  await Promise.all([...cards.values()].map(card => chart(card, nowMs)));
}

function newCard() {
  const element = at("card").content.cloneNode(true).querySelector("article");
  watcher.observe(element);
  return element;
}

function fill(card) {
  const { delay, element } = card;
  const field = name => element.querySelector(`[data-field="${name}"]`);
  const put = (name, text, value) => {
    field(name).replaceChildren(...prose(text));
    if (value !== undefined) field(name).value = value ?? "";
  };
  const changed = element.dataset.state !== delay.state;
  Object.assign(element.dataset, { consumer: delay.consumer, topic: delay.topic, state: delay.state });
  put("consumer", delay.consumer);
  put("topic", delay.topic);
  if (changed) put("state", STATES[delay.state].name);
  element.querySelector(".mark").textContent = STATES[delay.state].mark;
  put("delay", duration(delay.delay_ms), delay.delay_ms);
  put("delay-note", delay.delay_ms === null ? "" : "behind now");
  put("reason", delay.reason ?? "");
  field("reason").hidden = delay.reason === null;
  put("consumed-until", delay.consumed_until ? readable(delay.consumed_until) : "unknown", delay.consumed_until_ms);
  put("slowest", slowest(delay));
  put("age", duration(delay.age_ms), delay.age_ms);
  put("since", duration(Math.max(0, delay.now_ms - delay.since_ms)), delay.since_ms);
}

// Why it is unknown is said once: mostly that is the reason for the topic, too.
function slowest({ slowest, reason, now_ms: nowMs }) {
  if (slowest === null) return "none reported";
  if (slowest.watermark_ms === null) return `${slowest.partition}, unknown${reason?.includes(slowest.reason) ? "" : `: ${slowest.reason}`}`;
  return `${slowest.partition}, ${duration(nowMs - slowest.watermark_ms)} behind now`;
}

const readable = iso => `${iso.slice(0, 10)} ${iso.slice(11, 23)} UTC`;

// The history is fetched if it has changed and is visible.
async function chart(card, nowMs) {
  if (!card.visible || card.element.hidden) return;
  const { consumer, topic, listed_ms: listed, since_ms: since, stale_after_ms: silentMs, state, delay_ms: delayMs } = card.delay;
  const fromMs = nowMs - Number(at("range").value);
  const wanted = [listed, since, at("range").value].join();
  if (card.fetched !== wanted) {
    card.points = await history(consumer, topic, fromMs);
    card.fetched = wanted;
    table(card);
  }
  const label = `Delay of ${topic} read by ${consumer}: ${card.points.length} values, now ${STATES[state].name}, ${duration(delayMs)}`;
  draw(card.element.querySelector(".chart"), card.points.filter(point => point.at_ms >= fromMs), { fromMs, nowMs, silentMs, label });
}

async function history(consumer, topic, fromMs) {
  const wholeMs = Math.floor(fromMs / 60000) * 60000; // the same for all viewers within a minute
  const points = [];
  let before = "";
  for (let pages = 0; pages < 10 && before !== null; pages += 1) {
    const query = `limit=2000&since_ms=${wholeMs}${before && `&before=${before}`}`;
    const page = await get(`v1/delays/${encodeURIComponent(consumer)}/${encodeURIComponent(topic)}/history?${query}`);
    points.push(...page.points);
    before = page.next_before;
  }
  return points.reverse();
}

function table(card) {
  const rows = card.points.slice(-10).reverse().map(point => {
    const row = document.createElement("tr");
    for (const text of [point.at.slice(11, 19), duration(point.delay_ms), STATES[point.state].name]) {
      row.insertCell().textContent = text;
    }
    return row;
  });
  card.element.querySelector("tbody").replaceChildren(...rows);
}

function filter() {
  const words = at("find").value.toLowerCase().split(/\s+/);
  for (const [key, card] of cards) card.element.hidden = !words.every(word => key.toLowerCase().includes(word));
  const shown = [...cards.values()].some(card => !card.element.hidden);
  at("empty").hidden = shown;
  at("empty").textContent = cards.size ? "Nothing has this name." : "Nothing was submitted yet: is a collector running?";
}

function showLogin(reason) {
  const wasShown = !at("login").hidden;
  at("login").hidden = reason === null;
  at("controls").hidden = reason !== null;
  at("forget-token").hidden = sessionStorage.getItem(TOKEN) === null;
  if (reason === null) return;
  at("login-reason").textContent = reason;
  at("cards").replaceChildren();
  at("totals").replaceChildren();
  at("empty").hidden = true;
  cards.clear();
  status("Waiting for a token");
  if (!wasShown) at("token").focus();
}

const watcher = new IntersectionObserver(entries => {
  for (const entry of entries) {
    const card = [...cards.values()].find(each => each.element === entry.target);
    if (!card) continue;
    const appeared = entry.isIntersecting && !card.visible;
    card.visible = entry.isIntersecting;
    if (appeared) chart(card, card.delay.now_ms).catch(error => status(`No answer (${error.message})`, true));
  }
}, { rootMargin: "200px" });

at("login").addEventListener("submit", event => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, at("token").value.trim());
  at("token").value = "";
  refresh();
});
at("forget-token").addEventListener("click", () => {
  sessionStorage.removeItem(TOKEN);
  refresh();
});
at("controls").addEventListener("submit", event => event.preventDefault());
at("find").addEventListener("input", filter);
at("range").addEventListener("change", refresh);
addEventListener("resize", () => { for (const card of cards.values()) if (card.delay) chart(card, card.delay.now_ms); });
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : refresh()));
refresh();
