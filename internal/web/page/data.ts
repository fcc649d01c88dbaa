// SPDX-License-Identifier: Apache-2.0

// What a panel has so far. History is asked for once; after that only for the
// steps that are new.

import * as api from "./api";
import type { Span } from "./timerange";

const shared = new Map<string, Data>();

export class Data {
  times: number[] = [];
  /** By the legend's name: a value a time, null where there is none. */
  lines = new Map<string, (number | null)[]>();
  /** A histogram a time, of panels that show one. */
  columns: api.Bucket[][] = [];
  /** Counts the changes. */
  version = 0;
  private key = "";

  constructor(private query: string, private legend?: string) {}

  /** The data of panels that ask the same. */
  static of(query: string, legend?: string): Data {
    const key = query + " " + legend;
    if (!shared.has(key)) shared.set(key, new Data(query, legend));
    return shared.get(key)!;
  }

  /** Brings the data in line with the span; false when nothing is new. */
  async load(span: Span): Promise<boolean> {
    const key = span.step + " " + span.window;
    const last = this.times.at(-1);
    const goesOn = key === this.key && last !== undefined && span.start >= this.times[0] - span.step && span.end >= last &&
      span.start <= last;
    const from = goesOn ? last + span.step : span.start;
    if (from > span.end + 1e-6) return false;
    const series = await api.range(this.query.replaceAll("$w", span.window), from, span.end, span.step);
    if (!goesOn) {
      this.times = [];
      this.lines.clear();
      this.columns = [];
    }
    this.key = key;
    this.append(series, from, span);
    this.forget(span.start);
    this.version++;
    return true;
  }

  private append(series: api.Series[], from: number, span: Span): void {
    const had = this.times.length, count = Math.floor((span.end - from) / span.step + 1e-6) + 1;
    for (let i = 0; i < count; i++) this.times.push(from + i * span.step);
    for (const values of this.lines.values()) values.push(...new Array(count).fill(null));
    for (let i = 0; i < count; i++) this.columns.push([]);
    for (const s of series) {
      const at = (t: number): number => had + Math.round((t - from) / span.step);
      if (s.histograms.length) {
        s.times.forEach((t, i) => (this.columns[at(t)] = s.histograms[i]));
        continue;
      }
      const name = this.nameOf(s.labels);
      let values = this.lines.get(name);
      if (!values) this.lines.set(name, (values = new Array(this.times.length).fill(null)));
      s.times.forEach((t, i) => (values[at(t)] = isFinite(s.values[i]) ? s.values[i] : null));
    }
  }

  private nameOf(labels: Record<string, string>): string {
    if (this.legend) return labels[this.legend] ?? "";
    const { __name__: name = "", ...rest } = labels;
    const pairs = Object.entries(rest).map(([k, v]) => `${k}="${v}"`);
    return name + (pairs.length ? "{" + pairs.join(", ") + "}" : "") || "value";
  }

  private forget(start: number): void {
    const old = this.times.findIndex((t) => t >= start - 1e-6);
    if (old <= 0) return;
    this.times.splice(0, old);
    this.columns.splice(0, old);
    for (const [name, values] of this.lines) {
      values.splice(0, old);
      if (values.every((v) => v === null)) this.lines.delete(name);
    }
  }
}
