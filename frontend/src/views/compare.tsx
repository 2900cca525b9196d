import { useEffect, useState } from "preact/hooks";
import { Chart } from "../chart";
import { bytes, change, clock, isolated, millis, moment, perSecond, share, short } from "../format";
import { Graph } from "../graph";
import type { Source } from "../source";
import type { Frame, Run, RunDetail, Series, Summary } from "../types";
import { Empty } from "./parts";

interface Side {
  run: RunDetail;
  series: Series;
  frame: Frame | null;
}

/** Name, value, how it is written, and whether more is better. */
const FIGURES: [string, (s: Summary) => number | null, (v: number | null) => string, boolean | null][] = [
  ["Rows in", (s) => s.rows_in, short, null],
  ["Throughput", (s) => s.throughput, perSecond, true],
  ["Latency p50", (s) => s.latency_ms?.p50 ?? null, millis, false],
  ["Latency p95", (s) => s.latency_ms?.p95 ?? null, millis, false],
  ["Latency p99", (s) => s.latency_ms?.p99 ?? null, millis, false],
  ["Nodes, at most", (s) => s.nodes_used, short, false],
  ["Bytes across nodes", (s) => s.remote_bytes, bytes, false],
  ["Placement honoured", (s) => s.placement_honoured, share, true],
  ["Rows lost", (s) => s.rows_lost, short, false],
  ["Rows duplicated", (s) => s.rows_duplicated, short, false],
  ["Decisions", (s) => s.decisions, short, null],
  ["Time", (s) => s.seconds, clock, null],
];

export function runName(run: Run): string {
  const state = run.status === "finished" ? "" : `, ${run.status}`;
  return `${isolated(run.topology)} under ${isolated(run.strategy, 20)}, ${moment(run.started_at_s)}${state} (${run.id.slice(0, 6)})`;
}

export function Compare({ source, runs, run, series, frame, at, theme }: {
  source: Source; runs: Run[]; run: RunDetail; series: Series; frame: Frame; at: number | null; theme: string;
}) {
  const others = runs.filter((one) => one.id !== run.id);
  const [other, setOther] = useState<string>(others[0]?.id ?? "");
  const [side, setSide] = useState<Side | null>(null);
  const [trouble, setTrouble] = useState("");
  const into = at === null ? null : at - (series.t?.[0] ?? 0);
  useEffect(() => {
    if (!other) return;
    let wanted = true;
    Promise.all([source.run(other), source.series(other)])
      .then(async ([detail, columns]) => {
        const t = into === null ? null : (columns.t?.[0] ?? 0) + into;
        const shown = columns.t?.length ? await source.frame(other, t) : null;
        if (!wanted) return;
        setTrouble("");
        setSide({ run: detail, series: columns, frame: shown });
      })
      .catch((error: Error) => wanted && setTrouble(error.message));
    return () => { wanted = false; };
  }, [other, into]);
  if (!others.length) return <section class="card"><Empty>This store has no other run to compare with.</Empty></section>;
  const b = side?.run.id === other ? side : null;
  const zero = (columns: Series) => (columns.t ?? []).map((t) => t - (columns.t?.[0] ?? 0));
  const lines = (name: "processed_per_s" | "p95_ms" | "nodes" | "queue") => [
    { label: "this run", values: series[name], t: zero(series) },
    ...(b ? [{ label: "the other", values: b.series[name], t: zero(b.series) }] : []),
  ];
  const x = zero(series);
  const cursor = at === null ? null : at - (series.t?.[0] ?? 0);
  return (
    <div class="stacked">
      <section class="card" aria-label="Comparison">
        <h2>Two runs side by side</h2>
        <label class="field">Compare with{" "}
          <select value={other} onChange={(event) => setOther(event.currentTarget.value)}>
            {others.map((one) => <option key={one.id} value={one.id}>{runName(one)}</option>)}
          </select>
        </label>
        {trouble && <p class="bad">{trouble}</p>}
        <div class="scroll" tabIndex={0} role="region" aria-label="Figures of both runs">
          <table data-compare>
            <thead><tr><th>Figure</th><th>This run</th><th>The other</th><th>Difference</th></tr></thead>
            <tbody>
              {FIGURES.map(([name, value, show, more]) => {
                const [mine, theirs] = [value(run.summary), b ? value(b.run.summary) : null];
                const grown = mine !== null && theirs ? (mine - theirs) / theirs : null;
                const tone = grown === null || more === null || Math.abs(grown) < 0.02 ? "" : grown > 0 === more ? "good" : "bad";
                return (
                  <tr key={name}>
                    <th scope="row">{name}</th><td class="n">{show(mine)}</td><td class="n">{show(theirs)}</td>
                    <td class={`n ${tone}`}>{mine === null || !theirs ? "–" : change(mine, theirs)}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      </section>
      <div class="charts pairs">
        <Chart title="Processed" t={x} lines={lines("processed_per_s")} show={perSecond} at={cursor} theme={theme} />
        <Chart title="Latency p95" t={x} lines={lines("p95_ms")} show={millis} at={cursor} theme={theme} />
        <Chart title="Nodes in use" t={x} lines={lines("nodes")} show={short} counts stepped at={cursor} theme={theme} />
        <Chart title="Waiting at the sources" t={x} lines={lines("queue")} show={short} at={cursor} theme={theme} />
      </div>
      <div class="halves">
        {[{ title: "This run", frame }, { title: "The other", frame: b?.frame ?? null }].map((half) => (
          <section key={half.title} class="card" aria-label={half.title}>
            <h2>{half.title} <small>{half.frame ? `batch ${half.frame.batch}` : ""}</small></h2>
            {half.frame ? <Graph frame={half.frame} chosen={null} /> : <Empty>Nothing to show.</Empty>}
          </section>
        ))}
      </div>
    </div>
  );
}
