// Small parts that every page uses. All text goes through the framework's text nodes: nothing is ever read as HTML.

import { html, useEffect, useRef, useState } from "./preact.js";
import { told } from "./api.js";

const KINDS = { ready: "ready", failed: "broken", backoff: "broken", unloaded: "", reserved: "busy" };

/** A model's state: a mark of its own shape, and the word. */
export function State({ of: state, stage }) {
  const kind = KINDS[state] ?? "busy";
  return html`<span class=${`state ${kind}`}>${state}${stage && state !== "ready" ? ` · ${stage.replaceAll("_", " ")}` : ""}</span>`;
}

/** What went wrong: in words, with what the engine said. */
export function Problem({ error, title }) {
  if (!error) return null;
  const lines = error.logLines ?? error.log_lines ?? [];
  return html`<div class="note bad" role="alert">
    ${title && html`<strong>${title}</strong>`}
    <div>${error.message ? told(error) : String(error)}</div>
    ${error.code && html`<div class="small muted">code: <code>${error.code}</code></div>`}
    ${lines.length > 0 &&
    html`<details><summary>What the engine said (${lines.length} lines)</summary><pre>${lines.join("\n")}</pre></details>`}
  </div>`;
}

/** A button for something that takes a while: it cannot be pressed twice, and says what went wrong. */
export function Act({ run, children, class: kind = "", disabled, onError, ...rest }) {
  const [busy, setBusy] = useState(false);
  const there = useRef(true);
  useEffect(() => () => (there.current = false), []);
  const press = async (event) => {
    event.stopPropagation();
    setBusy(true);
    try {
      await run();
      onError?.(null);
    } catch (error) {
      onError?.(error);
    }
    if (there.current) setBusy(false);
  };
  return html`<button type="button" class=${kind} disabled=${busy || disabled} onClick=${press} ...${rest}>${children}</button>`;
}

/** A text that can be copied. */
export function Code({ text, label }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
  };
  return html`<div class="card">
    <header>
      <h3>${label}</h3>
      <button type="button" class="quiet" onClick=${copy}>${copied ? "Copied" : "Copy"}</button>
    </header>
    <pre class="code" tabindex="0">${text}</pre>
  </div>`;
}

/** A value that follows another one once that has been still for a moment. */
export function useCalm(value, milliseconds) {
  const [calm, setCalm] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setCalm(value), milliseconds);
    return () => clearTimeout(timer);
  }, [value, milliseconds]);
  return calm;
}

/** The time, every second, for what counts up or down. */
export function useClock() {
  const [at, setAt] = useState(Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || setAt(Date.now() / 1000), 1000);
    return () => clearInterval(timer);
  }, []);
  return at;
}

/** Where a model's own page is. */
export function placeOf(target) {
  return `#/models/${encodeURIComponent(target)}`;
}
