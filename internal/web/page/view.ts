// SPDX-License-Identifier: Apache-2.0

// One panel on the page: its heading, its chart, and what to say when there is
// nothing to draw.

import type { SamplerStatus } from "./api";
import { drawBars, element } from "./bars";
import { Chart, type Zoom } from "./chart";
import { Data } from "./data";
import type { Panel } from "./panels";
import type { Span } from "./timerange";

export class View {
  readonly root = element("section", "panel");
  visible = false;
  private drawn = 0; // the version of the data that is on the screen
  readonly data: Data;
  private body = element("div", "chart");
  private message = element("p", "message");
  private chart: Chart | null = null;

  constructor(readonly panel: Panel, zoom: Zoom) {
    this.root.id = panel.id;
    const heading = element("h2", "", panel.title);
    this.root.append(heading, element("p", "about", panel.about), this.body, this.message);
    this.data = Data.of(panel.query, panel.kind === "heatmap" || panel.kind === "quantiles" ? undefined : panel.legend);
    if (panel.kind !== "bars") this.chart = new Chart(this.body, panel, zoom);
    this.body.classList.add(panel.kind);
  }

  async load(span: Span, samplers: SamplerStatus[]): Promise<void> {
    await this.data.load(span);
    if (this.data.version !== this.drawn) this.draw(span, samplers);
  }

  draw(span: Span, samplers: SamplerStatus[]): void {
    this.drawn = this.data.version;
    const empty = this.data.lines.size === 0 && this.data.columns.every((c) => c.length === 0);
    this.message.textContent = empty ? this.why(samplers) : "";
    this.body.hidden = empty;
    if (empty) return;
    if (this.chart) this.chart.draw(this.data, span);
    else drawBars(this.body, this.data, this.panel.unit);
  }

  reset(): void {
    this.chart?.reset();
  }

  private why(samplers: SamplerStatus[]): string {
    const s = samplers.find((s) => s.name === this.panel.sampler);
    if (s && s.state !== "healthy") return `Not measured: sampler ${s.name} is ${s.state}${s.reason ? ": " + s.reason : ""}`;
    return "Nothing was recorded in this time";
  }
}
