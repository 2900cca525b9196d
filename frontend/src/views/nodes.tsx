import { Chart } from "../chart";
import { nodeClass } from "../colours";
import { clock, plural, share, short } from "../format";
import type { Frame, Happening, Node, Series } from "../types";
import { Load } from "./parts";

/** Decisions that changed no node. */
const NOT_DONE = ["refused", "recommended", "failed", "given up"];

/** Nodes that get a card each; more are lines of a table. */
const CARDS = 24;

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
        <Chart title="Nodes in use" t={t} lines={[{ label: "nodes", values: series.nodes }]} show={short} marks={events} at={at} seek={seek} stepped counts theme={theme} />
        <Chart title="Across nodes" note="part of the shuffled bytes" t={t} lines={[{ label: "remote", values: series.remote_share }]} show={share} marks={events} at={at} seek={seek} least={0.1} theme={theme} />
      </div>
      {order.length > CARDS ? <Table frame={frame} nodes={order} events={events} /> : <ul class="node-cards" aria-label="All nodes">
        {order.map((node) => {
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
                  <p class="held">{held(frame, node)}</p>
                </>
              ) : (
                <p class="held">{gone(node, frame, events)}</p>
              )}
            </li>
          );
        })}
      </ul>}
      {come.length > 0 && (
        <section class="card" aria-label="Coming and going">
          <h2>Coming and going</h2>
          <ul class="reasons">{come.map((event) => <li key={event.number}><span class="dim">{clock(event.t)}</span> {event.text}</li>)}</ul>
        </section>
      )}
    </>
  );
}

/** Say which instances a node holds. */
function held(frame: Frame, node: Node): string {
  const counts = frame.operators.map((o) => [o.name, o.node.filter((n) => n === node.number).length] as const).filter(([, n]) => n);
  if (counts.length) return counts.map(([name, n]) => `${n} × ${name}`).join(", ");
  return node.kept ? "kept in reserve" : "holds no instance";
}

/** Say how a node went. */
function gone(node: Node, frame: Frame, events: Happening[]): string {
  const last = events
    .filter((event) => event.t <= frame.t + 0.5 && !NOT_DONE.includes(event.status ?? ""))
    .filter(({ decision }) => decision?.released.includes(node.name) || decision?.woken.includes(node.name))
    .pop();
  if (last?.decision?.released.includes(node.name)) return `released at ${clock(last.t)}, decision ${last.number}`;
  return "gone without being released: lost";
}

/** Many nodes, the busiest first, those that are gone at the end. */
function Table({ frame, nodes, events }: { frame: Frame; nodes: Node[]; events: Happening[] }) {
  const order = [...nodes].sort((a, b) => Number(b.there) - Number(a.there) || (b.cpu ?? -1) - (a.cpu ?? -1) || a.number - b.number);
  const there = nodes.filter((node) => node.there);
  return (
    <section class="card" aria-label="All nodes">
      <h2>{plural(there.length, "node")} <small>the busiest first{there.length < nodes.length && `; ${nodes.length - there.length} gone`}</small></h2>
      <div class="scroll-box tall" tabIndex={0} role="region" aria-label="All nodes, the busiest first">
        <table class="tight">
          <thead><tr><th>Node</th><th>CPU</th><th>Memory</th><th>Planned</th><th>Holds</th></tr></thead>
          <tbody>
            {order.map((node) => (
              <tr key={node.name} class={node.there ? "" : "gone"} data-node-card={node.name} data-there={String(node.there)}>
                <td><span class="chip"><i class={`instance ${node.there ? nodeClass(node.number) : "node-none"}`}>{node.number}</i> <span class="node-name">{node.name}</span></span></td>
                <td>{node.there ? <Load value={node.cpu} /> : "gone"}</td>
                <td>{node.there && <Load value={node.mem} />}</td>
                <td class="n">{node.there && share(node.planned)}</td>
                <td class="wrap">{node.there ? held(frame, node) : gone(node, frame, events)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
