// Light or dark: as the system has it, or as somebody chose here.

const KEPT = "supervisor-theme";

export const THEMES = { system: "as the system", light: "light", dark: "dark" };

export function theme() {
  const kept = localStorage.getItem(KEPT);
  return Object.hasOwn(THEMES, kept) ? kept : "system";
}

export function applyTheme(name = theme()) {
  localStorage.setItem(KEPT, name);
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
}
