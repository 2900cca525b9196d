import { Chart } from "../chart";
import { nodeClass } from "../colours";
import { share, short } from "../format";
import type { Frame, Happening, Series } from "../types";
import { Load } from "./parts";

export interface TimeProps {
  series: Series;
  events: Happening[];
  at: number | null;
  seek: (t: number) => void;
  theme: string;
}

export function Nodes({ frame, series, events, at, seek, theme }: TimeProps & { frame: Frame }) {
  const t = series.t ?? [];
  const order = [...frame.nodes].sort((a, b) => Number(b.there) - Number(a.there) || a.number - b.number);
  const come = events.filter((event) => ["executors", "fault"].includes(event.kind)).slice(-8).reverse();
  return (
    <>
      <div class="charts">
        <Chart title="Nodes in use" t={t} lines={[{ label: "nodes", values: series.nodes }]} show={short} marks={events} at={at} seek={seek} stepped theme={theme} />
        <Chart title="Across nodes" note="part of the shuffled bytes" t={t} lines={[{ label: "remote", values: series.remote_share }]} show={share} marks={events} at={at} seek={seek} least={0.1} theme={theme} />
      </div>
      <ul class="node-cards" aria-label="All nodes">
        {order.map((node) => {
          const held = frame.operators.map((o) => [o.name, o.node.filter((n) => n === node.number).length] as const).filter(([, n]) => n);
          return (
            <li key={node.name} class={node.there ? "card node-card" : "card node-card gone"} data-node-card={node.name} data-there={String(node.there)}>
              <h3><i class={`instance ${node.there ? nodeClass(node.number) : "node-none"}`}>{node.number}</i> <span class="wrap">{node.name}</span></h3>
              {node.there ? (
                <>
                  <dl class="facts">
                    <dt>CPU</dt><dd><Load value={node.cpu} /></dd>
                    <dt>Memory</dt><dd><Load value={node.mem} /></dd>
                    <dt>Planned</dt><dd>{share(node.planned)}</dd>
                    <dt>Executors</dt><dd>{node.executors.join(", ") || "–"}</dd>
                  </dl>
                  <p class="held">{held.length ? held.map(([name, n]) => `${n} × ${name}`).join(", ") : node.kept ? "kept in reserve" : "holds no instance"}</p>
                </>
              ) : (
                <p class="held">gone: released or lost</p>
              )}
            </li>
          );
        })}
      </ul>
      {come.length > 0 && (
        <section class="card" aria-label="Coming and going">
          <h2>Coming and going</h2>
          <ul class="reasons">{come.map((event) => <li key={event.number}>{event.text}</li>)}</ul>
        </section>
      )}
    </>
  );
}
