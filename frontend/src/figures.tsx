/** The figures that matter, at the moment that is shown. */

import { indexAt } from "./chart";
import { millis, perSecond, share, short } from "./format";
import type { Frame, Happening, Series } from "./types";

export function Figures({ series, frame, events }: { series: Series; frame: Frame; events: Happening[] }) {
  const at = indexAt(series.t ?? [], frame.t);
  const state = [...events].reverse().find((event) => event.kind === "state" && event.t <= frame.t + 0.5);
  const used = frame.nodes.filter((node) => node.there && node.instances).length;
  const there = frame.nodes.filter((node) => node.there).length;
  const cards: [string, string, string][] = [
    ["Arriving", perSecond(series.offered_per_s?.[at]), ""],
    ["Processed", perSecond(series.processed_per_s?.[at]), ""],
    ["Latency p50", millis(series.p50_ms?.[at]), `p95 ${millis(series.p95_ms?.[at])}`],
    ["Batch", millis(frame.batch_ms), `number ${frame.batch.toLocaleString("en")}`],
    ["Waiting", short(frame.queue), "rows"],
    ["Nodes", `${used}`, `of ${there} there`],
    ["Across nodes", share(series.remote_share?.[at]), "of the bytes"],
  ];
  return (
    <dl class="figures" aria-label="Figures">
      {cards.map(([name, value, small]) => (
        <div key={name} data-figure={name}>
          <dt>{name}</dt>
          <dd>{value}{small && <small>{small}</small>}</dd>
        </div>
      ))}
      {state && (
        <div class="wide" data-figure="State">
          <dt>State</dt>
          <dd class="text">{state.text.replace(/^state /, "")}</dd>
        </div>
      )}
    </dl>
  );
}
