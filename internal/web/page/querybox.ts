// SPDX-License-Identifier: Apache-2.0

// The query box: any PromQL over the time the page shows.

import * as api from "./api";
import { element } from "./bars";
import { Chart, type Zoom } from "./chart";
import { Data } from "./data";
import { scaled } from "./format";
import type { Span } from "./timerange";

export class QueryBox {
  private input = document.querySelector<HTMLInputElement>("#expr")!;
  private result = document.querySelector<HTMLElement>("#answer")!;
  private expr = "";
  private data: Data | null = null;
  private chart: Chart | null = null;

  constructor(private zoom: Zoom, private span: () => Span) {
    document.querySelector<HTMLFormElement>("#query")!.addEventListener("submit", (e) => {
      e.preventDefault();
      void this.ask();
    });
    this.input.addEventListener("focus", () => void this.suggest(), { once: true });
  }

  /** Names of metrics, for the browser's own completion. */
  private async suggest(): Promise<void> {
    const names = await api.names().catch(() => []);
    document.querySelector("#names")!.replaceChildren(...names.map((n) => Object.assign(document.createElement("option"), { value: n })));
  }

  private async ask(): Promise<void> {
    this.expr = this.input.value.trim();
    this.chart?.reset();
    this.chart = null;
    this.data = null;
    this.result.replaceChildren();
    if (!this.expr) return;
    this.data = new Data(this.expr);
    await this.refresh();
  }

  /** Asks for what is new. */
  async refresh(): Promise<void> {
    if (!this.data) return;
    try {
      if (await this.data.load(this.span())) this.draw();
    } catch (e) {
      if (!(e instanceof api.QueryError)) throw e;
      this.data = null;
      this.result.replaceChildren(element("p", "error", e.message));
    }
  }

  draw(): void {
    const data = this.data;
    if (!data) return;
    const histograms = data.columns.some((c) => c.length > 0);
    if (!histograms && data.lines.size === 0) {
      this.result.replaceChildren(element("p", "message", "No series"));
      return;
    }
    if (!this.chart) {
      const host = element("div", "chart");
      this.result.replaceChildren(host, element("table", "values"));
      this.chart = new Chart(host, { kind: histograms ? "quantiles" : "lines", unit: histograms ? "ns" : "number" }, this.zoom);
    }
    this.chart.draw(data, this.span());
    this.table(data);
  }

  private table(data: Data): void {
    const rows = [...data.lines].slice(0, 50).map(([name, values]) => {
      const row = document.createElement("tr");
      row.append(element("td", "", name), element("td", "value", scaled(values.at(-1) ?? NaN, 1000)));
      return row;
    });
    this.result.querySelector("table.values")?.replaceChildren(...rows);
  }

  reset(): void {
    this.chart?.reset();
    this.draw();
  }
}
