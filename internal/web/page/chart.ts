// SPDX-License-Identifier: Apache-2.0

// A chart: uPlot with our axes, colours and habits. Dragging zooms all charts,
// a double click goes back, the cursor is on the same moment everywhere.

import uPlot from "../vendor/uplot/uPlot.esm.js";
import type { Data } from "./data";
import { format } from "./format";
import { quantile } from "./histogram";
import { heatmapPlugin } from "./heatmap";
import { quantiles, type Panel } from "./panels";
import * as theme from "./theme";
import type { Span } from "./timerange";

export interface Zoom {
  to(start: number, end: number): void;
  back(): void;
}

interface Drawn {
  names: string[];
  values: (number | null)[][]; // as they are
  shown: (number | null)[][]; // as they are drawn: stacked
}

export class Chart {
  private plot: uPlot | null = null;
  private names: string[] = [];
  private raw: (number | null)[][] = [];

  constructor(private host: HTMLElement, private panel: Pick<Panel, "kind" | "unit" | "order">, private zoom: Zoom) {
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(host);
  }

  draw(data: Data, span: Span): void {
    const drawn = this.arrange(data);
    this.raw = drawn.values;
    const table = [data.times, ...drawn.shown] as uPlot.AlignedData;
    if (!this.plot || drawn.names.join() !== this.names.join()) {
      this.names = drawn.names;
      this.plot?.destroy();
      this.plot = new uPlot(this.options(data), table, this.host);
    } else {
      this.plot.setData(table, false);
    }
    this.plot.setScale("x", { min: span.start, max: span.end });
  }

  /** Draws anew, for another theme. */
  reset(): void {
    this.plot?.destroy();
    this.plot = null;
  }

  private arrange(data: Data): Drawn {
    // One line that is not drawn: uPlot has no axis without.
    if (this.panel.kind === "heatmap") return { names: [""], values: [[]], shown: [data.times.map(() => null)] };
    if (this.panel.kind === "quantiles") {
      const values = quantiles.map(([, q]) => data.columns.map((c) => quantile(c, q)));
      return { names: quantiles.map(([name]) => name), values, shown: values };
    }
    const stacked = this.panel.kind === "stack";
    // A layer of nothing would only hide the line below it.
    const names = sorted([...data.lines.keys()].filter((n) => !stacked || data.lines.get(n)!.some((v) => v)), this.panel.order);
    const values = names.map((n) => data.lines.get(n)!);
    return { names, values, shown: stacked ? stack(values) : values };
  }

  private size(): { width: number; height: number } {
    return { width: Math.max(200, this.host.clientWidth), height: this.host.clientWidth < 480 ? 170 : 200 };
  }

  private options(data: Data): uPlot.Options {
    const heatmap = this.panel.kind === "heatmap", logarithmic = this.panel.unit === "ns" && !heatmap;
    const axis = { stroke: theme.variable("--muted"), grid: { stroke: theme.variable("--grid"), width: 1 }, ticks: { show: false } };
    return {
      ...this.size(),
      padding: [10, 12, 0, 0],
      scales: { x: { time: true }, y: logarithmic ? { distr: 3 } : { range: (_u, _min, max) => [0, Math.max(max * 1.08, 1e-9)] } },
      axes: [
        { ...axis, size: 28, space: 70, values: (_u, ticks) => ticks.map(clock) },
        { ...axis, size: 66, ...(logarithmic ? { splits: decades } : {}), values: (_u, ticks) => ticks.map((v) => (v == null ? "" : format(v, this.panel.unit))) },
      ],
      cursor: { sync: { key: "page" }, drag: { x: true, y: false, setScale: false }, points: { size: 5 }, bind: { dblclick: () => () => (this.zoom.back(), null) } },
      legend: { live: true, show: !heatmap },
      bands: this.panel.kind === "stack" ? this.names.slice(1).map((_n, i) => ({ series: [i + 2, i + 1] })) : [],
      series: [{ value: (_u, t) => (t == null ? "–" : clock(t)) }, ...this.names.map((name, i) => this.series(name, i))],
      hooks: {
        setSelect: [
          (u) => {
            if (u.select.width < 3) return;
            this.zoom.to(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"));
            u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          },
        ],
      },
      plugins: heatmap ? [heatmapPlugin(data)] : [],
    };
  }

  private series(name: string, i: number): uPlot.Series {
    const filled = this.panel.kind === "stack", color = theme.color(i);
    return {
      label: name,
      stroke: color,
      width: filled ? 1 : 1.5,
      fill: filled ? color + "66" : undefined,
      points: { show: false },
      spanGaps: false,
      // What is drawn is stacked; what is said is the value.
      value: (_u, _v, _s, at) => format(at == null ? null : this.raw[i]?.[at], this.panel.unit),
    };
  }
}

/** The time of day of an axis, in the viewer's zone. */
function clock(t: number): string {
  const text = new Date(t * 1000).toTimeString().slice(0, 8);
  return t % 1 ? text + "." + String(Math.round((t % 1) * 1000)).padStart(3, "0") : text;
}

/** Powers of ten; of few, their halves and fifths too. */
function decades(_u: uPlot, _axis: number, min: number, max: number): number[] {
  const at: number[] = [], fine = max / min < 100;
  for (let d = 10 ** Math.floor(Math.log10(min)); d <= max; d *= 10) at.push(...(fine ? [d, 2 * d, 5 * d] : [d]));
  return at.filter((v) => v >= min && v <= max);
}

/** In the order given, what is not in it behind, by name. */
function sorted(names: string[], order: string[] = []): string[] {
  const place = (n: string): number => (order.includes(n) ? order.indexOf(n) : order.length);
  return names.sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1));
}

/** Each on top of those before; drawn from the last, so the first is whole. */
function stack(values: (number | null)[][]): (number | null)[][] {
  let below: (number | null)[] = [];
  return values.map((line) => (below = line.map((v, i) => (v === null ? null : v + (below[i] ?? 0)))));
}
