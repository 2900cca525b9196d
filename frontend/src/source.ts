/** Where the data comes from: the server, or what a report holds in itself. */

import type { Frame, Happening, News, Run, RunDetail, Series } from "./types";

/** Milliseconds until a server that is gone is asked again. */
export const RETRY_MS = 2000;

export interface Source {
  /** Whether it can tell what is new. */
  readonly live: boolean;
  runs(): Promise<Run[]>;
  run(id: string): Promise<RunDetail>;
  series(id: string): Promise<Series>;
  frame(id: string, t: number | null): Promise<Frame>;
  events(id: string): Promise<Happening[]>;
  /** Call `tell` with what is new, until the returned function is called. */
  follow(id: string, since: number, tell: (news: News) => void, lost: (gone: boolean) => void): () => void;
}

export class ServerSource implements Source {
  readonly live = true;

  private async get<T>(path: string): Promise<T> {
    const answer = await fetch(path, { headers: { accept: "application/json" } });
    const body: unknown = await answer.json().catch(() => ({}));
    if (!answer.ok) {
      throw new Error((body as { error?: string }).error ?? `the server answered ${answer.status}`);
    }
    return body as T;
  }

  private of(id: string): string {
    return `api/runs/${encodeURIComponent(id)}`;
  }

  async runs(): Promise<Run[]> {
    return (await this.get<{ runs: Run[] }>("api/runs")).runs;
  }

  run(id: string): Promise<RunDetail> {
    return this.get(this.of(id));
  }

  series(id: string): Promise<Series> {
    return this.get(`${this.of(id)}/series`);
  }

  frame(id: string, t: number | null): Promise<Frame> {
    return this.get(`${this.of(id)}/frame${t === null ? "" : `?t=${t}`}`);
  }

  async events(id: string): Promise<Happening[]> {
    return (await this.get<{ events: Happening[] }>(`${this.of(id)}/events`)).events;
  }

  follow(id: string, since: number, tell: (news: News) => void, lost: (gone: boolean) => void): () => void {
    let stream: EventSource | null = null;
    let again = 0;
    let over = false;
    const open = () => {
      if (over || document.hidden) return;
      stream = new EventSource(`${this.of(id)}/live?since=${since}`);
      stream.onopen = () => lost(false);
      stream.addEventListener("trouble", () => lost(true));
      stream.onmessage = (message) => {
        const news = JSON.parse(message.data as string) as News;
        const batches = news.series.batch ?? [];
        since = Math.max(since, ...batches.slice(-1));
        tell(news);
        if (news.status !== "running") stop();
      };
      stream.onerror = () => {
        lost(true);
        // A browser tries again by itself, but not when the server answered that it cannot.
        if (stream?.readyState === EventSource.CLOSED) {
          clearTimeout(again);
          again = window.setTimeout(open, RETRY_MS);
        }
      };
    };
    const close = () => {
      clearTimeout(again);
      stream?.close();
      stream = null;
    };
    // A browser has six connections to a server, so that a page nobody looks at gives its own back.
    const looked = () => {
      close();
      open();
    };
    const stop = () => {
      over = true;
      close();
      document.removeEventListener("visibilitychange", looked);
    };
    document.addEventListener("visibilitychange", looked);
    open();
    return stop;
  }
}

/** What a report holds. */
export interface Embedded {
  run: RunDetail;
  series: Series;
  events: Happening[];
  frames: Frame[];
}

export class EmbeddedSource implements Source {
  readonly live = false;

  constructor(private readonly data: Embedded) {}

  async runs(): Promise<Run[]> {
    return [this.data.run];
  }

  async run(): Promise<RunDetail> {
    return this.data.run;
  }

  async series(): Promise<Series> {
    return this.data.series;
  }

  async frame(_: string, t: number | null): Promise<Frame> {
    const frames = this.data.frames;
    const last = frames[frames.length - 1];
    if (!last) throw new Error("this run has no batch");
    return t === null ? last : (frames.find((frame) => frame.t >= t - 1e-3) ?? last);
  }

  async events(): Promise<Happening[]> {
    return this.data.events;
  }

  follow(): () => void {
    return () => undefined;
  }
}

export function source(): Source {
  const held = document.getElementById("penstock-data");
  return held ? new EmbeddedSource(JSON.parse(held.textContent ?? "") as Embedded) : new ServerSource();
}

/** Batches of a series after one. */
function after(series: Series, batch: number): Series {
  const first = (series.batch ?? []).findIndex((one) => one > batch);
  if (first === 0) return series;
  const cut = (column: unknown) => (first < 0 ? [] : (column as unknown[]).slice(first));
  const inner = (of: object) => Object.fromEntries(Object.entries(of).map(([name, column]) => [name, cut(column)]));
  return Object.fromEntries(
    Object.entries(series).map(([name, of]) => [name, name === "lit" || name === "phases" ? inner(of as object) : cut(of)]),
  ) as unknown as Series;
}

/** Put new batches behind those that are known; one that is told again counts once. */
export function extended(known: Series, told: Series): Series {
  const more = known.batch?.length ? after(told, known.batch[known.batch.length - 1]!) : told;
  const last = known.t?.length ?? 0;
  const added = more.t?.length ?? 0;
  if (!added) return known;
  const joined: Record<string, unknown> = {};
  const names = new Set([...Object.keys(known), ...Object.keys(more)]);
  const column = (a: unknown, b: unknown) => [
    ...((a as (number | null)[] | undefined) ?? Array<null>(last).fill(null)),
    ...((b as (number | null)[] | undefined) ?? Array<null>(added).fill(null)),
  ];
  for (const name of names) {
    const [a, b] = [known[name as keyof Series], more[name as keyof Series]];
    if (name === "lit" || name === "phases") {
      const [x, y] = [(a ?? {}) as Record<string, unknown>, (b ?? {}) as Record<string, unknown>];
      const inner = new Set([...Object.keys(x), ...Object.keys(y)]);
      joined[name] = Object.fromEntries([...inner].map((key) => [key, column(x[key], y[key])]));
    } else {
      joined[name] = column(a, b);
    }
  }
  return joined as unknown as Series;
}
