// SPDX-License-Identifier: Apache-2.0

// The heatmap of a latency, drawn under uPlot's axes: one image of a pixel a
// cell, scaled by the canvas.

import type uPlot from "../vendor/uplot/uPlot.esm.js";
import type { Data } from "./data";
import { duration } from "./format";
import { grid, quantile, rowsPerOctave, type Grid } from "./histogram";
import * as theme from "./theme";

export function heatmapPlugin(data: Data): uPlot.Plugin {
  let cells: Grid = grid(data.columns);
  const image = document.createElement("canvas");
  const note = document.createElement("div");
  note.className = "note";
  return {
    opts: (_u, options) => {
      options.scales!.y = { range: () => [cells.octave, cells.octave + Math.max(1, cells.rows / rowsPerOctave)] };
      options.axes![1].values = (_v, ticks) => ticks.map((t) => (Number.isInteger(t) ? duration(2 ** t) : ""));
      options.axes![1].grid = { show: false };
      options.series[1].paths = () => null;
    },
    hooks: {
      init: (u) => void u.over.appendChild(note),
      setData: () => (cells = grid(data.columns)),
      drawClear: (u) => {
        cells = grid(data.columns);
        if (cells.rows === 0) return;
        paint(image, cells);
        const step = data.times.length > 1 ? data.times[1] - data.times[0] : 1;
        const left = u.valToPos(data.times[0] - step, "x", true), right = u.valToPos(data.times.at(-1)!, "x", true);
        u.ctx.save();
        u.ctx.beginPath();
        u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
        u.ctx.clip();
        u.ctx.imageSmoothingEnabled = false;
        u.ctx.drawImage(image, left, u.bbox.top, right - left, u.bbox.height);
        u.ctx.restore();
      },
      setCursor: (u) => {
        const at = u.cursor.idx, column = at == null ? undefined : data.columns[at];
        const p99 = column && quantile(column, 0.99), p50 = column && quantile(column, 0.5);
        note.textContent = p99 == null || p50 == null ? "" : `p50 ${duration(p50)}  p99 ${duration(p99)}`;
      },
    },
  };
}

/** One pixel a cell, the lowest row at the bottom. The scale is logarithmic:
 * single events beside millions are what a heatmap is for. */
function paint(image: HTMLCanvasElement, g: Grid): void {
  image.width = g.cells.length;
  image.height = g.rows;
  const context = image.getContext("2d")!, pixels = context.createImageData(image.width, image.height);
  let most = 0;
  for (const column of g.cells) for (const v of column) most = Math.max(most, v);
  g.cells.forEach((column, x) => {
    column.forEach((v, row) => {
      if (v <= 0) return;
      const [r, green, b] = theme.heat(0.12 + 0.88 * Math.log1p((v / most) * 1000) / Math.log1p(1000));
      pixels.data.set([r, green, b, 255], ((g.rows - 1 - row) * image.width + x) * 4);
    });
  });
  context.putImageData(pixels, 0, 0);
}
