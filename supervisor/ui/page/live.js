// Keeps the store as the daemon is. Nothing is asked while the tab is hidden.

import { Refused, call, events, get, told } from "./api.js";
import { now, put, putIn } from "./store.js";

const MEMORY_MS = 3000; // between two looks at the devices
const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 10000;

let following = null; // the controller of the stream of events
let watchers = 0; // parts of the page that show devices
let timer = 0;

/** Follow the daemon from now on. */
export function begin() {
  document.addEventListener("visibilitychange", () => (document.hidden ? pause() : resume()));
  if (!document.hidden) resume();
}

/** Ask again: after a key was given. */
export function resume() {
  pause();
  following = new AbortController();
  follow(following.signal);
  tick();
}

function pause() {
  following?.abort();
  following = null;
  put({ connected: false });
  clearTimeout(timer);
  timer = 0;
}

async function follow(signal) {
  let wait = FIRST_RETRY_MS;
  while (!signal.aborted) {
    try {
      await refreshStatus(signal);
      const response = await call("GET", "/api/v1/events", undefined, { signal });
      put({ connected: true, failure: null, locked: false });
      wait = FIRST_RETRY_MS;
      for await (const { event, data } of events(response)) heard(event, data);
    } catch (error) {
      if (signal.aborted) return;
      put({ connected: false, failure: told(error) });
      if (error instanceof Refused && error.status === 401) return;
    }
    if (signal.aborted) return;
    put({ connected: false });
    await new Promise((go) => setTimeout(go, wait));
    wait = Math.min(wait * 2, LAST_RETRY_MS);
  }
}

export async function refreshStatus(signal) {
  put({ status: await get("/api/v1/status", { signal }) });
}

function heard(event, data) {
  if (event === "snapshot") {
    put({
      models: new Map(data.models.map((one) => [one.id, one])),
      requests: new Map(data.requests.map((one) => [one.id, one])),
    });
  } else if (event === "model") {
    const before = now().models.get(data.id);
    putIn("models", data.id, data);
    if (before?.state !== data.state) lookSoon();
  } else if (event === "model_removed") putIn("models", data.id, null);
  else if (event === "request") putIn("requests", data.id, data);
  else if (event === "request_done") putIn("requests", data.id, null);
}

/** Look at the devices again and again until the returned function is called. */
export function watchMemory() {
  watchers += 1;
  if (watchers === 1) tick();
  return () => {
    watchers -= 1;
  };
}

function lookSoon() {
  if (!timer) return;
  clearTimeout(timer);
  timer = setTimeout(tick, 150);
}

async function tick() {
  clearTimeout(timer);
  timer = 0;
  if (!watchers || document.hidden || now().locked || !following) return;
  const { signal } = following;
  try {
    put({ memory: await get("/api/v1/memory", { signal }) });
  } catch {
    // the stream of events says what is wrong
  }
  if (signal.aborted) return;
  clearTimeout(timer);
  timer = setTimeout(tick, MEMORY_MS);
}
