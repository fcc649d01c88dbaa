// SPDX-License-Identifier: Apache-2.0

import * as api from "./api";
import { ago } from "./format";
import { panels } from "./panels";
import { QueryBox } from "./querybox";
import * as theme from "./theme";
import { lengths, TimeRange } from "./timerange";
import { View } from "./view";

theme.set(theme.initial());

const find = (selector: string): HTMLElement => document.querySelector<HTMLElement>(selector)!;

/** Milliseconds between two rounds of queries: what they cost the agent falls by half
 * and more from one second to two and a half, and several points at a time move as well as one. */
const pace = 2500;

class Page {
  private samplers: api.SamplerStatus[] = [];
  private range: TimeRange;
  private views: View[];
  private box: QueryBox;
  private busy = false;
  private lostSince = 0;
  private skew = 0; // the server's clock minus ours, in seconds
  private heard = 0; // when the clock of a replay was, ours in milliseconds

  constructor(private info: api.PageInfo) {
    this.range = new TimeRange(info, () => void this.refresh());
    const zoom = { to: (a: number, b: number) => this.range.fix(a, b), back: () => this.home() };
    this.views = panels.map((p) => new View(p, zoom));
    this.box = new QueryBox(zoom, () => this.range.span(this.now()));
    this.setClock(info);
    this.heading();
    this.buttons();
    find("#panels").append(...this.views.map((v) => v.root));
    this.watch();
  }

  async run(): Promise<void> {
    this.samplers = await api.samplers();
    await this.refresh();
    setInterval(() => {
      if (!document.hidden && (this.range.live || this.lostSince)) void this.refresh();
    }, Math.max(pace, this.info.interval));
    setInterval(() => void api.samplers().then((s) => (this.samplers = s)), 30_000);
  }

  /** The server's time, a moment back: the tick of now may not be there yet. */
  private now(): number {
    const clock = this.info.clock;
    if (clock) return clock.now / 1000 + ((performance.now() - this.heard) / 1000 - 0.25) * clock.speed;
    return Date.now() / 1000 + this.skew - 0.25;
  }

  private setClock(info: api.PageInfo): void {
    this.heard = performance.now();
    if (info.mode === "live" && info.last) this.skew = Math.min(0, info.last / 1000 + info.interval / 1000 - Date.now() / 1000);
  }

  private home(): void {
    if (this.info.mode === "live") this.range.follow(300);
    else this.range.whole();
  }

  private heading(): void {
    const { host, kernel, title, mode } = this.info;
    document.title = (mode === "file" ? title : host) + " – Rezolus";
    find("#host").textContent = mode === "file" ? title : host;
    find("#kernel").textContent = [mode === "file" ? host : "", kernel && "Linux " + kernel].filter(Boolean).join(", ");
    find("#version").textContent = "rezolus " + this.info.version;
  }

  private buttons(): void {
    const choices: [string, number, () => void][] = lengths.map((s) =>
      [ago(s), s, () => (this.info.mode === "live" ? this.range.follow(s) : this.range.last(s))]);
    choices.push(["all", 0, () => this.all()]);
    for (const [text, seconds, act] of choices) {
      const button = document.createElement("button");
      button.textContent = text;
      button.dataset.seconds = String(seconds);
      button.addEventListener("click", act);
      find("#ranges").append(button);
    }
    find("#pause").hidden = this.info.mode === "file";
    find("#pause").addEventListener("click", () => {
      const { start, end } = this.range.span(this.now());
      if (this.range.live) this.range.fix(start, end);
      else this.home();
    });
    find("#theme").addEventListener("click", () => {
      theme.toggle();
      this.redraw();
    });
  }

  private async all(): Promise<void> {
    this.info = await api.page();
    this.range.fix(this.info.first / 1000, this.info.last / 1000);
  }

  /** Only what is on the screen is asked for. */
  private watch(): void {
    const observer = new IntersectionObserver((entries) => {
      for (const e of entries) this.views.find((v) => v.root === e.target)!.visible = e.isIntersecting;
      void this.refresh();
    }, { rootMargin: "100px" });
    for (const v of this.views) observer.observe(v.root);
  }

  private redraw(): void {
    const span = this.range.span(this.now());
    for (const v of this.views) {
      v.reset();
      v.draw(span, this.samplers);
    }
    this.box.reset();
  }

  private async refresh(): Promise<void> {
    if (this.busy) return;
    this.busy = true;
    let span = this.range.span(this.now());
    try {
      if (this.info.clock) { // it may have ended, or begun again
        this.setClock((this.info = await api.page()));
        span = this.range.span(this.now());
      }
      for (const v of this.views) if (v.visible) await v.load(span, this.samplers);
      await this.box.refresh();
      this.lostSince = 0;
    } catch {
      this.lostSince ||= Date.now();
    } finally {
      this.busy = false;
    }
    this.state(span.start, span.end);
  }

  private state(start: number, end: number): void {
    const dot = find("#state");
    const state = this.lostSince ? "lost" : this.range.live ? "live" : this.info.mode === "file" ? "file" : "paused";
    dot.dataset.state = state;
    const speed = this.info.clock?.speed;
    dot.textContent = state === "lost" ? "connection lost since " + new Date(this.lostSince).toLocaleTimeString()
      : state !== "live" || speed === undefined ? state : speed ? "replay ×" + speed : "replay, over";
    find("#pause").textContent = this.range.live ? "pause" : "back to live";
    for (const b of document.querySelectorAll<HTMLButtonElement>("#ranges button")) {
      b.setAttribute("aria-pressed", String(this.range.live && Number(b.dataset.seconds) === this.range.length));
    }
    find("#shown").textContent = `${new Date(start * 1000).toLocaleTimeString()} – ${new Date(end * 1000).toLocaleTimeString()}`;
  }
}

async function begin(): Promise<void> {
  for (;;) {
    try {
      return await new Page(await api.page()).run();
    } catch (e) {
      find("#state").textContent = "no answer: " + (e instanceof Error ? e.message : e);
      await new Promise((r) => setTimeout(r, 1000));
    }
  }
}

void begin();
