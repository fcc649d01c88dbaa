// SPDX-License-Identifier: Apache-2.0

// What the page asks of its server: Prometheus's query API, and two documents
// of our own.

export interface PageInfo {
  mode: "live" | "file";
  title: string;
  host: string;
  kernel: string;
  version: string;
  first: number; // ms
  last: number;
  interval: number;
  /** The data's time where it is not everybody's: of a replay. Speed 0: it stands still. */
  clock?: { now: number; speed: number };
}

export interface Bucket {
  lo: number;
  hi: number;
  count: number;
}

export interface Series {
  labels: Record<string, string>;
  times: number[]; // seconds
  values: number[];
  histograms: Bucket[][];
}

export interface SamplerStatus {
  name: string;
  state: string;
  reason?: string;
}

type RawHistogram = { buckets?: [number, string, string, string][] };
interface RawSeries {
  metric: Record<string, string>;
  values?: [number, string][];
  value?: [number, string];
  histograms?: [number, RawHistogram][];
  histogram?: [number, RawHistogram];
}

/** An answer that says no: its text is for the user. */
export class QueryError extends Error {}

async function get(path: string, parameters: Record<string, string>): Promise<any> {
  const response = await fetch(path + "?" + new URLSearchParams(parameters), { cache: "no-store" });
  const body = await response.json().catch(() => null);
  if (body?.status === "error") throw new QueryError(body.error);
  if (!response.ok || body === null) throw new Error(path + ": " + response.status);
  return body;
}

/** A bound of a bucket. Nothing that is measured here is below zero. */
const bound = (text: string): number => (text === "-Inf" ? 0 : text === "+Inf" ? 2 ** 64 : Number(text));

function series(raw: RawSeries): Series {
  const histograms = raw.histograms ?? (raw.histogram ? [raw.histogram] : []);
  const values = raw.values ?? (raw.value ? [raw.value] : []);
  return {
    labels: raw.metric,
    times: (histograms.length ? histograms : values).map(([t]) => t),
    values: values.map(([, v]) => Number(v)),
    histograms: histograms.map(([, h]) =>
      (h.buckets ?? []).map(([, lo, hi, count]) => ({ lo: bound(lo), hi: bound(hi), count: Number(count) }))),
  };
}

export async function range(query: string, start: number, end: number, step: number): Promise<Series[]> {
  const body = await get("api/v1/query_range", { query, start: String(start), end: String(end), step: String(step) });
  return (body.data.result as RawSeries[]).map(series);
}

export async function names(): Promise<string[]> {
  return (await get("api/v1/label/__name__/values", {})).data;
}

export const page = (): Promise<PageInfo> => get("api/page", {});

/** The states of the samplers; a file has none. */
export async function samplers(): Promise<SamplerStatus[]> {
  try {
    return (await get("status", {})).samplers ?? [];
  } catch {
    return [];
  }
}
