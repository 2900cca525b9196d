import { Chart } from "../chart";
import { millis, perSecond, share, short } from "../format";
import type { TimeProps } from "./nodes";

const decimals = (value: number | null | undefined) => (value === null || value === undefined ? "–" : value.toFixed(2));

export function OverTime({ series, events, at, seek, theme }: TimeProps) {
  const t = series.t ?? [];
  const shared = { t, marks: events, at, seek, theme };
  const late = (series.late_per_s ?? []).some((v) => v) || (series.dropped_per_s ?? []).some((v) => v);
  return (
    <>
      <p class="hint">Dashed lines are decisions, dotted ones faults. Click a chart to go to that moment.</p>
      <div class="charts">
        <Chart {...shared} title="Rows per second" note="at the sources and the sinks" show={perSecond}
          lines={[{ label: "offered", values: series.offered_per_s }, { label: "processed", values: series.processed_per_s }, { label: "written", values: series.written_per_s }]} />
        <Chart {...shared} title="Latency" note="source to commit" show={millis}
          lines={[{ label: "p50", values: series.p50_ms }, { label: "p95", values: series.p95_ms }, { label: "p99", values: series.p99_ms }]} />
        <Chart {...shared} title="Waiting at the sources" note="rows" show={short} least={10} lines={[{ label: "queue", values: series.queue }]} />
        <Chart {...shared} title="Phases of a batch" show={millis} stacked
          lines={Object.entries(series.phases).map(([label, values]) => ({ label, values }))} />
        <Chart {...shared} title="Nodes in use" show={short} stepped counts lines={[{ label: "nodes", values: series.nodes }]} />
        <Chart {...shared} title="Across nodes" note="part of the shuffled bytes" show={share} least={0.1} lines={[{ label: "remote", values: series.remote_share }]} />
        <Chart {...shared} title="Imbalance" note="0 is even" show={decimals} least={0.5}
          lines={[{ label: "LIN, nodes", values: series.lin }, ...Object.entries(series.lit).map(([name, values]) => ({ label: `LIT, ${name}`, values }))]} />
        {late && <Chart {...shared} title="Rows left out" note="late or turned away" show={perSecond} lines={[{ label: "late", values: series.late_per_s }, { label: "dropped", values: series.dropped_per_s }]} />}
      </div>
    </>
  );
}
