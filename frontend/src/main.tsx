/** The page: one run, live or at any moment of it. */

import "uplot/dist/uPlot.min.css";
import "./app.css";
import { render } from "preact";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Figures } from "./figures";
import { clock, cut } from "./format";
import { extended, RETRY_MS, source as found, type Source } from "./source";
import { Timeline } from "./timeline";
import type { Frame, Happening, News, Run, RunDetail, Series } from "./types";
import { Compare, runName } from "./views/compare";
import { Decisions } from "./views/decisions";
import { Nodes } from "./views/nodes";
import { Skew } from "./views/skew";
import { StateView } from "./views/state";
import { OverTime } from "./views/time";
import { Topology } from "./views/topology";

const VIEWS = [
  ["topology", "Topology"],
  ["nodes", "Nodes"],
  ["time", "Over time"],
  ["skew", "Skew"],
  ["state", "State"],
  ["decisions", "Decisions"],
  ["compare", "Compare"],
] as const;

type View = (typeof VIEWS)[number][0];

/** Seconds without a batch, and batches' own times, after which it is told that none comes. */
const SILENT_S = 60;
const SILENT_BATCHES = 10;

/** Batches that are kept one by one on the page; then the series is read anew, rolled up. */
const MOST_POINTS = 3000;

interface Shown {
  run: RunDetail;
  series: Series;
  frame: Frame | null;
  events: Happening[];
}

function readHash(): { run: string | null; view: View } {
  const [, run, view] = location.hash.split("/");
  const known = VIEWS.find(([name]) => name === view);
  let id: string | null = null;
  try {
    id = run ? decodeURIComponent(run) : null;
  } catch {
    // An address that was cut in the middle of a character names no run.
  }
  return { run: id, view: known ? known[0] : "topology" };
}

function writeHash(run: string, view: View) {
  const wanted = `#/${encodeURIComponent(run)}/${view}`;
  if (location.hash !== wanted) history.replaceState(null, "", wanted);
}

function useTheme(): [string, () => void] {
  const media = matchMedia("(prefers-color-scheme: dark)");
  const kept = () => {
    try {
      return localStorage.getItem("penstock-theme");
    } catch {
      return null;
    }
  };
  const [theme, setTheme] = useState(kept() ?? (media.matches ? "dark" : "light"));
  document.documentElement.dataset.theme = theme;
  const turn = () => {
    const next = theme === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem("penstock-theme", next);
    } catch {
      // A browser that keeps nothing still shows it.
    }
    setTheme(next);
  };
  return [theme, turn];
}

function merged(known: Happening[], told: Happening[]): Happening[] {
  if (!told.length) return known;
  const all = new Map(known.map((event) => [event.number, event]));
  for (const event of told) all.set(event.number, event);
  return [...all.values()].sort((a, b) => a.number - b.number);
}

function App({ source }: { source: Source }) {
  const [theme, turnTheme] = useTheme();
  const [runs, setRuns] = useState<Run[] | null>(null);
  const [id, setId] = useState<string | null>(readHash().run);
  const [view, setView] = useState<View>(readHash().view);
  const [shown, setShown] = useState<Shown | null>(null);
  const [at, setAt] = useState<number | null>(null);
  const [past, setPast] = useState<Frame | null>(null);
  const [chosen, setChosen] = useState<string | null>(null);
  const [trouble, setTrouble] = useState("");
  const [lost, setLost] = useState(false);
  const asked = useRef(0);

  // Which runs there are; a new one is shown by itself only while there is none.
  useEffect(() => {
    let over = false;
    const look = () =>
      source.runs().then(
        (all) => {
          if (over) return;
          setTrouble("");
          setRuns(all);
          if (all.length) setId((now) => (now && all.some((run) => run.id === now) ? now : all[0]!.id));
        },
        (error: Error) => !over && setTrouble(error.message),
      );
    void look();
    const timer = source.live ? setInterval(look, 3000) : 0;
    return () => {
      over = true;
      clearInterval(timer);
    };
  }, []);

  useEffect(() => {
    const changed = () => {
      const { run, view: wanted } = readHash();
      if (run) setId(run);
      setView(wanted);
    };
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);

  const load = useCallback(async (run: string): Promise<Shown> => {
    const [detail, series, events] = await Promise.all([source.run(run), source.series(run), source.events(run)]);
    const frame = series.t?.length ? await source.frame(run, null) : null;
    return { run: detail, series, frame, events };
  }, []);

  // One run, followed while it goes on.
  useEffect(() => {
    if (!id) return;
    let over = false;
    let stop: () => void = () => undefined;
    let again = 0;
    setAt(null);
    setPast(null);
    setChosen(null);
    const tell = (news: News) => {
      if (over) return;
      setShown((now) => {
        if (!now) return now;
        const series = extended(now.series, news.series);
        const run = { ...now.run, status: news.status };
        return { run, series, frame: news.frame ?? now.frame, events: merged(now.events, news.events) };
      });
      if (news.status !== "running") void load(id).then((all) => !over && setShown(all), () => undefined);
    };
    const begin = () => load(id).then(
      (all) => {
        if (over) return;
        setTrouble("");
        setShown(all);
        const last = all.series.batch?.[all.series.batch.length - 1] ?? -1;
        if (source.live && all.run.status === "running") stop = source.follow(id, last, tell, setLost);
      },
      (error: Error) => {
        if (over) return;
        setTrouble(error.message);
        again = window.setTimeout(begin, RETRY_MS);
      },
    );
    void begin();
    return () => {
      over = true;
      clearTimeout(again);
      stop();
    };
  }, [id]);

  useEffect(() => {
    if (id) writeHash(id, view);
    document.title = shown ? `${shown.run.topology} · Penstock` : "Penstock";
  }, [id, view, shown?.run.topology]);

  // A long run that is watched for hours: what is old is read rolled up.
  const points = shown?.series.t?.length ?? 0;
  useEffect(() => {
    if (id && points > MOST_POINTS) void source.series(id).then((series) => setShown((now) => now && { ...now, series }), () => undefined);
  }, [points > MOST_POINTS]);

  const go = useCallback(
    (t: number | null) => {
      setAt(t);
      if (t === null || !id) {
        setPast(null);
        return;
      }
      const number = ++asked.current;
      source.frame(id, t).then(
        (frame) => number === asked.current && setPast(frame),
        (error: Error) => setTrouble(error.message),
      );
    },
    [id],
  );
  const seek = useCallback((t: number) => go(t), [go]);

  const frame = at === null ? (shown?.frame ?? null) : (past ?? shown?.frame ?? null);
  const ready = shown && shown.run.id === id ? shown : null;
  const failure = ready && ready.run.status === "failed" ? ready.events.filter((event) => event.kind === "failure").pop() : undefined;
  const nav = useRef<HTMLElement>(null);
  useEffect(() => {
    // On a narrow screen the row of views is scrolled until the chosen one is seen.
    const link = nav.current?.querySelector<HTMLElement>("[aria-current]");
    if (nav.current && link) nav.current.scrollLeft = link.offsetLeft - (nav.current.clientWidth - link.offsetWidth) / 2;
  }, [view, ready !== null && frame !== null]);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to content</a>
      <header class="top">
        <span class="brand"><Logo /> Penstock</span>
        {runs && runs.length > 1 && (
          <label class="run-picker">
            <span class="unseen">Run</span>
            <select value={id ?? ""} onChange={(event) => setId(event.currentTarget.value)} data-runs>
              {runs.map((run) => <option key={run.id} value={run.id}>{runName(run)}</option>)}
            </select>
          </label>
        )}
        {ready && <Status run={ready.run} frame={ready.frame} lost={lost} single={(runs?.length ?? 0) <= 1} />}
        <button type="button" class="quiet theme" onClick={turnTheme} aria-label={`Use ${theme === "dark" ? "light" : "dark"} colours`}>{theme === "dark" ? "☀" : "☾"}</button>
      </header>
      {trouble && <p class="trouble" role="alert">{trouble}</p>}
      {failure && <p class="trouble" data-failure>The run failed: {failure.text}</p>}
      {!ready || !frame ? (
        <main id="main" tabIndex={-1}>
          <p class="loading" role="status">
            {runs && !runs.length ? "No run yet. This page shows the first one as soon as it begins."
              : !ready ? "Loading …"
              : ready.run.status === "running" ? "The run has begun; its first batch is awaited."
              : "The run ended before its first batch."}
          </p>
          {ready && ready.events.length > 0 && <Decisions events={ready.events} seek={undefined} />}
        </main>
      ) : (
        <>
          <Figures series={ready.series} frame={frame} events={ready.events} />
          <nav class="views" aria-label="Views" ref={nav}>
            {VIEWS.filter(([name]) => name !== "compare" || source.live).map(([name, label]) => (
              <a key={name} href={`#/${encodeURIComponent(ready.run.id)}/${name}`} aria-current={view === name ? "page" : undefined}>
                {label}
                {name === "decisions" && <Count of={ready.events.filter((event) => event.kind === "decision").length} />}
              </a>
            ))}
          </nav>
          <main id="main" tabIndex={-1} data-view={view} data-batch={frame.batch} data-points={points} data-mode={at === null ? "live" : "replay"}>
            <h1 class="unseen">{VIEWS.find(([name]) => name === view)?.[1]} of {ready.run.topology}</h1>
            {view === "topology" && <Topology frame={frame} chosen={chosen} choose={setChosen} series={ready.series} events={ready.events} at={at} seek={seek} theme={theme} />}
            {view === "nodes" && <Nodes frame={frame} series={ready.series} events={ready.events} at={at} seek={seek} theme={theme} />}
            {view === "time" && <OverTime series={ready.series} events={ready.events} at={at} seek={seek} theme={theme} />}
            {view === "skew" && <Skew frame={frame} />}
            {view === "state" && <StateView frame={frame} events={ready.events} series={ready.series} run={ready.run} />}
            {view === "decisions" && <Decisions events={ready.events} seek={seek} />}
            {view === "compare" && <Compare source={source} runs={runs ?? []} run={ready.run} series={ready.series} frame={frame} at={at} theme={theme} />}
          </main>
          <Timeline t={ready.series.t ?? []} at={at} go={go}
            running={ready.run.status === "running"} events={ready.events} batch={frame.batch} />
        </>
      )}
    </>
  );
}

function Count({ of }: { of: number }) {
  return of ? <span class="count">{of}</span> : null;
}

/** How long nothing came of a run that should go on; 0 while that is not long. */
function useSilence(run: RunDetail, frame: Frame | null): number {
  const [now, setNow] = useState(Date.now() / 1000);
  const running = run.status === "running" && !run.virtual_time;
  useEffect(() => {
    if (!running) return;
    const timer = setInterval(() => setNow(Date.now() / 1000), 5000);
    return () => clearInterval(timer);
  }, [running]);
  const silent = now - run.started_at_s - (frame?.t ?? 0);
  const most = Math.max(SILENT_S, (SILENT_BATCHES * (frame?.batch_ms ?? 0)) / 1000);
  return running && silent > most ? silent : 0;
}

function Status({ run, frame, lost, single }: { run: RunDetail; frame: Frame | null; lost: boolean; single: boolean }) {
  const silent = useSilence(run, frame);
  const gone = lost && run.status === "running";
  const text = gone ? "connection lost, trying again" : run.status;
  return (
    <span class="status-line">
      {single && <span class="wrap run-name"><bdi>{cut(run.topology, 120)}</bdi> under {run.strategy}</span>}
      <span class={`status ${gone ? "failed" : run.status}`} role="status" data-status={run.status}>{text}</span>
      {silent > 0 && !gone && <span class="tag" data-silent>no batch for {clock(silent)}</span>}
      {run.virtual_time && <span class="tag">virtual time</span>}
      {run.rows_lost ? <span class="tag bad">{run.rows_lost.toLocaleString("en")} rows lost</span> : null}
      {run.rows_duplicated ? <span class="tag bad">{run.rows_duplicated.toLocaleString("en")} rows duplicated</span> : null}
    </span>
  );
}

function Logo() {
  return (
    <svg viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="7" class="logo-back" />
      <path d="M6 9c7 0 7 7 13 7h7M6 16c5 0 7 0 13 0M6 23c7 0 7-7 13-7" class="logo-line" />
    </svg>
  );
}

const place = document.getElementById("app");
if (place) {
  place.textContent = "";
  render(<App source={found()} />, place);
}
