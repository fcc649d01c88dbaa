// SPDX-License-Identifier: Apache-2.0

import type { Bucket } from "./api";

/**
 * The q-quantile of a histogram, or null of an empty one: linear within the
 * bucket that holds it, as Prometheus's histogram_quantile has it.
 */
export function quantile(buckets: Bucket[], q: number): number | null {
  let total = 0;
  for (const b of buckets) total += b.count;
  if (!(total > 0)) return null;
  let rank = q * total;
  for (const b of buckets) {
    if (rank <= b.count) return b.lo + (b.hi - b.lo) * (rank / b.count);
    rank -= b.count;
  }
  return buckets[buckets.length - 1].hi;
}

/** The rows of the heatmap: steps of an octave between two powers of two. */
export const rowsPerOctave = 4;

export interface Grid {
  octave: number; // of the lowest row
  rows: number;
  cells: Float32Array[]; // a column a time, of row counts
}

/** Spreads buckets over rows of equal height on a logarithmic axis. */
export function grid(columns: Bucket[][]): Grid {
  let lowest = Infinity, highest = -Infinity;
  for (const column of columns) {
    for (const b of column) {
      if (b.count <= 0) continue;
      lowest = Math.min(lowest, Math.floor(log2(b.lo)));
      highest = Math.max(highest, Math.ceil(log2(b.hi)));
    }
  }
  if (lowest > highest) return { octave: 0, rows: 0, cells: [] };
  const rows = (highest - lowest) * rowsPerOctave;
  const cells = columns.map((column) => {
    const cell = new Float32Array(rows);
    for (const b of column) spread(cell, b, lowest);
    return cell;
  });
  return { octave: lowest, rows, cells };
}

function spread(cell: Float32Array, b: Bucket, octave: number): void {
  const from = (log2(b.lo) - octave) * rowsPerOctave, to = (log2(b.hi) - octave) * rowsPerOctave;
  const first = Math.max(0, Math.floor(from + 1e-6)), last = Math.min(cell.length, Math.ceil(to - 1e-6));
  for (let row = first; row < last; row++) {
    const share = Math.min(row + 1, to) - Math.max(row, from);
    cell[row] += (b.count * share) / (to - from);
  }
}

const log2 = (v: number): number => Math.log2(Math.max(1, v));
