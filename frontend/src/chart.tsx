/** Lines over time: uPlot with the page's colours, marks for decisions, and a legend in text. */

import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { variable } from "./colours";
import { clock, UNKNOWN } from "./format";
import type { Column, Happening, Maybe } from "./types";

export interface Line {
  label: string;
  values: Column | undefined;
  /** Times of its own, where lines of two runs share a chart. */
  t?: number[];
}

export interface ChartProps {
  title: string;
  note?: string;
  t: number[];
  lines: Line[];
  show: (value: Maybe<number> | undefined) => string;
  marks?: Happening[];
  /** The moment that is shown elsewhere; null: the last. */
  at?: number | null;
  seek?: (t: number) => void;
  stacked?: boolean;
  stepped?: boolean;
  /** Values are whole numbers, and so are those at the axis. */
  counts?: boolean;
  least?: number;
  theme: string;
}

const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [4, 4], [12, 4]];
const HEIGHT = 150;

/** Steps of the axis of time. */
const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800];

/** Steps of an axis that counts. */
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 100_000, 1_000_000];

/** Position of the last value that is not after a time. */
export function indexAt(t: number[], at: number | null | undefined): number {
  if (at === null || at === undefined) return t.length - 1;
  let [low, high] = [0, t.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((t[middle] ?? 0) < at - 1e-3) low = middle + 1;
    else high = middle;
  }
  return high;
}

function stacked(lines: Line[]): Column[] {
  const sums: number[] = [];
  return lines.map((line) =>
    (line.values ?? []).map((value, i) => {
      sums[i] = (sums[i] ?? 0) + (value ?? 0);
      return sums[i] ?? null;
    }),
  );
}

/** Lines whose times differ, on the times of all. */
function aligned(t: number[], lines: Line[]): { x: number[]; columns: Column[] } {
  if (!lines.some((line) => line.t)) return { x: t, columns: lines.map((l) => l.values ?? []) };
  const x = [...new Set(lines.flatMap((line) => line.t ?? t))].sort((a, b) => a - b);
  const columns = lines.map((line) => {
    const known = new Map((line.t ?? t).map((at, i) => [at, line.values?.[i] ?? null]));
    // Between its own points a line goes on; uPlot draws over what is undefined.
    return x.map((at) => (known.has(at) ? known.get(at)! : (undefined as unknown as null)));
  });
  return { x, columns };
}

export function Chart(props: ChartProps) {
  const { title, note, t, lines, show, marks = [], at = null, seek, theme } = props;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const live = useRef({ marks, at, seek, t });
  live.current = { marks, at, seek, t };
  const [hover, setHover] = useState<number | null>(null);
  const shape = `${theme}|${lines.map((line) => line.label).join("|")}|${props.stacked ?? false}`;
  const { x, columns } = props.stacked ? { x: t, columns: stacked(lines) } : aligned(t, lines);
  const order = props.stacked ? [...columns.keys()].reverse() : [...columns.keys()];
  const data = [x, ...order.map((i) => columns[i] ?? [])] as uPlot.AlignedData;

  useEffect(() => {
    if (!box.current) return;
    const dim = variable("--dim");
    const grid = { stroke: variable("--line"), width: 1 };
    const font = "11px system-ui, sans-serif";
    const axis = { stroke: dim, grid, font, ticks: { show: false } };
    const options: uPlot.Options = {
      width: box.current.clientWidth || 300,
      height: HEIGHT,
      legend: { show: false },
      padding: [8, 18, 0, 0],
      cursor: { sync: { key: "penstock" }, points: { size: 5 }, drag: { x: false, y: false } },
      scales: {
        x: { time: false },
        y: { range: (_u, low, high) => [Math.min(0, low ?? 0), Math.max(props.least ?? 1e-9, (high ?? 1) * 1.08)] },
      },
      axes: [
        { ...axis, values: (_u, ticks) => ticks.map(clock), size: 26, incrs: SECONDS },
        { ...axis, values: (_u, ticks) => ticks.map((v) => show(v)), size: 58, ...(props.counts ? { incrs: WHOLE } : {}) },
      ],
      series: [
        {},
        ...order.map((i) => ({
          label: lines[i]?.label ?? "",
          stroke: variable(`--s${i % 6}`),
          width: 1.75,
          dash: props.stacked ? [] : (DASHES[i % DASHES.length] ?? []),
          fill: props.stacked ? variable(`--f${i % 6}`) : undefined,
          paths: props.stepped ? uPlot.paths.stepped?.({ align: 1 }) : undefined,
          points: { show: false },
          spanGaps: lines.some((line) => line.t),
        })),
      ],
      hooks: {
        drawClear: [(u) => drawMarks(u, live.current.marks, live.current.at)],
        setCursor: [(u) => setHover(u.cursor.idx ?? null)],
      },
    };
    const made = new uPlot(options, data, box.current);
    made.over.addEventListener("click", () => {
      const where = made.cursor.left ?? -1;
      if (where >= 0) live.current.seek?.(made.posToVal(where, "x"));
    });
    plot.current = made;
    const watcher = new ResizeObserver(() => {
      if (box.current) made.setSize({ width: box.current.clientWidth, height: HEIGHT });
    });
    watcher.observe(box.current);
    return () => {
      watcher.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape]);

  useEffect(() => {
    plot.current?.setData(data);
  }, [t, lines]);

  useEffect(() => {
    plot.current?.redraw(false);
  }, [at, marks.length]);

  const now = hover !== null && x[hover] !== undefined ? x[hover]! : at;
  const empty = !t.length || lines.every((line) => !(line.values ?? []).some((v) => v !== null));
  const told = lines.map((line) => {
    const times = line.t ?? t;
    const value = line.values?.[indexAt(times, now)];
    return { label: line.label, value: value === undefined ? UNKNOWN : show(value) };
  });
  const words = told.map((one) => `${one.label} ${one.value}`).join(", ");
  return (
    <figure class="card chart" data-chart={title}>
      <figcaption>
        {title} {note && <small>{note}</small>}
      </figcaption>
      <ul class="legend">
        {told.map((one, i) => (
          <li key={one.label}>
            <svg class="key" viewBox="0 0 24 8" aria-hidden="true">
              {props.stacked ? (
                <rect width="24" height="8" rx="2" class={`swatch s${i % 6}`} />
              ) : (
                <line x1="1" x2="23" y1="4" y2="4" class={`stroke s${i % 6}`} stroke-dasharray={(DASHES[i % 6] ?? []).join(" ")} />
              )}
            </svg>
            {one.label} <b>{one.value}</b>
          </li>
        ))}
      </ul>
      <div class={empty ? "plot hidden" : "plot"} ref={box} role="img" aria-label={`${title} over time: ${words}`} />
      {empty && <p class="none">Nothing was measured.</p>}
    </figure>
  );
}

function drawMarks(u: uPlot, marks: Happening[], at: number | null) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.lineWidth = Math.max(1, devicePixelRatio);
  const line = (t: number, colour: string, dash: number[]) => {
    const x = Math.round(u.valToPos(t, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) return;
    ctx.strokeStyle = colour;
    ctx.setLineDash(dash.map((d) => d * devicePixelRatio));
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  };
  for (const mark of marks) {
    if (mark.kind === "decision" && mark.status !== "refused") line(mark.t, variable("--accent"), [3, 3]);
    else if (mark.kind === "fault" || mark.kind === "executors") line(mark.t, variable("--bad"), [1, 3]);
  }
  if (at !== null) line(at, variable("--text"), []);
  ctx.restore();
}
