// SPDX-License-Identifier: Apache-2.0

// Which stretch of time the page shows, in seconds: the last so many, moving
// along, or a fixed one.

import type { PageInfo } from "./api";

export interface Span {
  start: number;
  end: number;
  step: number;
  window: string; // of rates, for PromQL
}

/** Seconds that can be chosen. */
export const lengths = [60, 300, 900, 3600];

/** Points that a chart can use. */
const points = 400;

export class TimeRange {
  /** Seconds that move along; 0: fixed. */
  length: number;
  private start: number;
  private end: number;

  constructor(private info: PageInfo, private changed: () => void) {
    // An agent that has just begun has little to show in five minutes.
    this.length = info.mode === "file" ? 0 : info.last - info.first < 120_000 ? 60 : 300;
    // A replay that is fast would run through it between two looks.
    const minute = 60 * (info.clock?.speed ?? 1);
    if (this.length && minute > this.length) this.length = lengths.find((s) => s >= minute) ?? lengths.at(-1)!;
    this.start = info.first / 1000;
    this.end = info.last / 1000;
  }

  get live(): boolean {
    return this.length > 0;
  }

  follow(seconds: number): void {
    this.length = seconds;
    this.changed();
  }

  fix(start: number, end: number): void {
    this.length = 0;
    this.start = start;
    this.end = Math.max(end, start + this.info.interval / 1000);
    this.changed();
  }

  /** Everything there is. */
  whole(): void {
    this.fix(this.info.first / 1000, this.info.last / 1000);
  }

  /** The last so many seconds of what there is, at rest. */
  last(seconds: number): void {
    this.fix(Math.max(this.info.first / 1000, this.info.last / 1000 - seconds), this.info.last / 1000);
  }

  /** The present span, on a grid of its step, so that steps asked for twice are the same. */
  span(now: number): Span {
    const end = this.live ? now : this.end, start = this.live ? now - this.length : this.start;
    const interval = Math.max(0.001, this.info.interval / 1000);
    const step = Math.max(interval, nice((end - start) / points));
    const window = Math.max(2 * step, 2 * interval);
    return { start: Math.ceil(start / step) * step, end: Math.floor(end / step + 1e-9) * step, step, window: Math.round(window * 1000) + "ms" };
  }
}

/** The next of 1, 2, 5, 10, ... at a power of ten, or of 15 and 30 s and so on. */
export function nice(seconds: number): number {
  for (const s of [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800]) {
    if (s >= seconds) return s;
  }
  return Math.ceil(seconds / 3600) * 3600;
}
