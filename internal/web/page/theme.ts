// SPDX-License-Identifier: Apache-2.0

// Colours. Those of the lines are told apart by hue and lightness, so that
// neighbours differ for the colour-blind too.

const light = ["#2563eb", "#ea580c", "#059669", "#c026d3", "#ca8a04", "#0891b2", "#dc2626", "#7c3aed", "#4d7c0f", "#be185d", "#0f766e", "#92400e", "#475569",
  "#1e40af", "#9f1239", "#65a30d"];
const dark = ["#60a5fa", "#fb923c", "#34d399", "#e879f9", "#facc15", "#22d3ee", "#f87171", "#a78bfa", "#a3e635", "#f472b6", "#2dd4bf", "#d97706", "#94a3b8",
  "#93c5fd", "#fda4af", "#bef264"];

/** Stops of the heatmap, from few to many, even in lightness. */
const heatLight = [[241, 245, 249], [186, 214, 240], [107, 164, 214], [52, 106, 178], [33, 52, 120], [20, 20, 60]];
const heatDark = [[20, 26, 40], [34, 56, 110], [60, 98, 160], [70, 160, 160], [160, 205, 110], [250, 235, 120]];

export type Theme = "light" | "dark";

export function current(): Theme {
  return document.documentElement.dataset.theme === "dark" ? "dark" : "light";
}

/** What the user chose before, or else what the system has. */
export function initial(): Theme {
  const saved = localStorage.getItem("theme");
  if (saved === "light" || saved === "dark") return saved;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

export function set(theme: Theme): void {
  document.documentElement.dataset.theme = theme;
}

export function toggle(): void {
  set(current() === "dark" ? "light" : "dark");
  localStorage.setItem("theme", current());
}

export const color = (i: number): string => (current() === "dark" ? dark : light)[i % 16];

/** A colour of the heatmap for 0 (few) to 1 (many). */
export function heat(v: number): [number, number, number] {
  const stops = current() === "dark" ? heatDark : heatLight;
  const at = Math.min(0.9999, Math.max(0, v)) * (stops.length - 1);
  const i = Math.floor(at), part = at - i;
  return [0, 1, 2].map((c) => stops[i][c] + (stops[i + 1][c] - stops[i][c]) * part) as [number, number, number];
}

export const variable = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
