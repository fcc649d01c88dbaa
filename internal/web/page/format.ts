// SPDX-License-Identifier: Apache-2.0

// Numbers for people.

export type Unit = "ns" | "cpus" | "rate" | "bytes" | "number";

/** A duration in nanoseconds, in the unit that leaves few digits. */
export function duration(ns: number): string {
  const units: [string, number][] = [["s", 1e9], ["ms", 1e6], ["µs", 1e3]];
  for (const [name, size] of units) {
    if (Math.abs(ns) >= size) return digits(ns / size) + " " + name;
  }
  return digits(ns) + " ns";
}

/** A number with an SI prefix; bytes go by 1024. */
export function scaled(v: number, base: number): string {
  const prefixes = ["", "k", "M", "G", "T", "P"];
  let i = 0;
  while (Math.abs(v) >= base && i < prefixes.length - 1) {
    v /= base;
    i++;
  }
  const binary = base === 1024 && i > 0 ? "i" : "";
  return digits(v) + (prefixes[i] ? " " + prefixes[i] + binary : "");
}

/** Three significant digits, and no zeros that say nothing. */
export function digits(v: number): string {
  if (!isFinite(v)) return "–";
  const text = Math.abs(v) >= 100 ? v.toFixed(0) : v.toPrecision(3);
  return text.includes(".") && !text.includes("e") ? text.replace(/\.?0+$/, "") : text;
}

export function format(v: number | null | undefined, unit: Unit): string {
  if (v == null || isNaN(v)) return "–";
  switch (unit) {
    case "ns":
      return duration(v);
    case "cpus":
      return digits(v * 100) + " %";
    case "rate":
      return scaled(v, 1000) + "/s";
    case "bytes": {
      const s = scaled(v, 1024);
      return s + (s.includes(" ") ? "B" : " B");
    }
    case "number":
      return scaled(v, 1000);
  }
}

/** A time range in words, for buttons and titles. */
export function ago(seconds: number): string {
  if (seconds < 60) return Math.round(seconds) + " s";
  if (seconds < 3600) return Math.round(seconds / 60) + " min";
  return digits(seconds / 3600) + " h";
}
