// SPDX-License-Identifier: Apache-2.0

// A list of the largest, with a bar each: the newest value of every series. The
// newest step may be one that the agent has not reached.

import type { Data } from "./data";
import { format, type Unit } from "./format";

export function drawBars(host: HTMLElement, data: Data, unit: Unit): void {
  const rows = [...data.lines].map(([name, values]) => [name, values.at(-1) ?? values.at(-2) ?? null] as const)
    .filter((r): r is readonly [string, number] => r[1] !== null).sort((a, b) => b[1] - a[1]);
  const most = Math.max(1e-12, ...rows.map(([, v]) => v));
  host.replaceChildren(...rows.map(([name, value]) => {
    const row = element("div", "bar"), fill = element("div", "fill");
    fill.style.width = (100 * value) / most + "%";
    row.title = name;
    row.append(fill, element("span", "name", name), element("span", "value", format(value, unit)));
    return row;
  }));
}

export function element(tag: string, className = "", text = ""): HTMLElement {
  const e = document.createElement(tag);
  e.className = className;
  e.textContent = text;
  return e;
}
