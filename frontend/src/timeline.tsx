/** The slider over time: live, or any moment of the run. */

import { useEffect, useState } from "preact/hooks";
import { clock } from "./format";
import { indexAt } from "./chart";
import type { Happening } from "./types";

/** Seconds of the run that pass in a second of play. */
const SPEEDS = [1, 10, 60];

export interface TimelineProps {
  /** Ends of the batches. */
  t: number[];
  /** The moment that is shown; null: the last. */
  at: number | null;
  go: (t: number | null) => void;
  running: boolean;
  events: Happening[];
  batch: number;
}

/** Keys that go on or back, and by how many batches. */
const KEYS: Record<string, number> = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 };

export function Timeline({ t, at, go, running, events, batch }: TimelineProps) {
  const [first, last] = [t[0] ?? 0, t[t.length - 1] ?? 0];
  const [playing, setPlaying] = useState(false);
  const [speed, setSpeed] = useState(10);
  const shown = at ?? last;
  const span = Math.max(1e-6, last - first);
  useEffect(() => {
    if (!playing) return;
    const timer = setInterval(() => {
      const next = shown + speed * 0.25;
      if (next >= last) {
        setPlaying(false);
        go(null);
      } else {
        go(next);
      }
    }, 250);
    return () => clearInterval(timer);
  }, [playing, shown, speed, last]);
  const play = () => {
    if (!playing && at === null) go(first);
    setPlaying(!playing);
  };
  const marks = events.filter((event) => (event.kind === "decision" && event.status !== "refused") || event.kind === "fault");
  return (
    <footer class="timeline" aria-label="Time">
      <button type="button" class="round" onClick={play} aria-label={playing ? "Pause" : "Play"} data-play>
        <svg viewBox="0 0 16 16" aria-hidden="true">{playing ? <path d="M4 3h3v10H4zM9 3h3v10H9z" /> : <path d="M4 2.5v11l9-5.5z" />}</svg>
      </button>
      <label class="speed">
        <span class="unseen">Speed</span>
        <select value={speed} onChange={(event) => setSpeed(Number(event.currentTarget.value))}>
          {SPEEDS.map((one) => <option key={one} value={one}>{one}×</option>)}
        </select>
      </label>
      <div class="track">
        <svg class="marks" viewBox="0 0 1000 8" preserveAspectRatio="none" aria-hidden="true">
          {marks.map((event) => {
            const x = ((event.t - first) / span) * 1000;
            return <rect key={event.number} x={Math.min(997, Math.max(0, x))} width="3" height="8" class={event.kind === "fault" ? "fault" : ""} />;
          })}
        </svg>
        <input type="range" min={first} max={last} step="any" value={shown} aria-label="Moment of the run"
          aria-valuetext={`${clock(shown)} of ${clock(last)}, batch ${batch}`} data-slider
          onKeyDown={(event) => {
            const by = KEYS[event.key];
            if (by === undefined) return;
            event.preventDefault();
            setPlaying(false);
            const next = Math.max(0, indexAt(t, at) + by);
            go(next >= t.length - 1 ? null : (t[next] ?? null));
          }}
          onInput={(event) => { setPlaying(false); go(Number(event.currentTarget.value)); }} />
      </div>
      <output class="clock">{clock(shown)} <small>of {clock(last)}</small></output>
      <button type="button" class={at === null ? "live on" : "live"} aria-pressed={at === null} onClick={() => { setPlaying(false); go(null); }} data-live>
        {running ? "Live" : "End"}
      </button>
    </footer>
  );
}
