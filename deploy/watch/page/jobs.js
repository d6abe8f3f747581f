// The jobs of a process, fetched every two seconds; each links to its page.

import { clock, count } from "./shapes.js";

const REFRESH_MS = 2000;
const at = id => document.getElementById(id);
let shown = "";

async function refresh() {
  try {
    const response = await fetch("v1/jobs", { cache: "no-store" });
    if (!response.ok) throw new Error(`the process answered ${response.status}`);
    const { now_ms: now, jobs } = await response.json();
    if (JSON.stringify(jobs) !== shown) at("jobs").querySelector("tbody").replaceChildren(...jobs.map(row));
    shown = JSON.stringify(jobs); // rows that are as they were stay, with the reader's focus
    at("status").textContent = `As of ${clock(now)} UTC`;
    at("status").classList.remove("failed");
  } catch (error) {
    at("status").textContent = `No answer (${error.message})`;
    at("status").classList.add("failed");
  }
  setTimeout(refresh, REFRESH_MS);
}

function row({ name, page, state, progress, says, lag }) {
  const link = document.createElement("a");
  link.href = page;
  link.textContent = name;
  const badge = document.createElement("span");
  badge.className = "badge";
  badge.dataset.state = badge.textContent = progress ?? state;
  const line = document.createElement("tr");
  for (const content of [link, badge, lag === null ? "" : count(lag), says]) {
    const cell = document.createElement("td");
    cell.append(content);
    line.append(cell);
  }
  line.children[2].className = "number";
  return line;
}

refresh();
