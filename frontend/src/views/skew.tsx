import { nodeClass } from "../colours";
import { plural, share, short } from "../format";
import type { Frame, Operator } from "../types";
import { Bar, Empty } from "./parts";

/** Instances that are drawn one by one; of more, the busiest. */
const DRAWN = 120;

export function Skew({ frame }: { frame: Frame }) {
  const operators = [...frame.operators].sort((a, b) => (b.lit ?? -1) - (a.lit ?? -1));
  return (
    <div class="stacked">
      {operators.map((operator) => (
        <section key={operator.name} class="card" aria-label={`Skew of ${operator.name}`} data-skew={operator.name}>
          <h2 class="wrap">
            {operator.name} <small>{operator.lit === null ? "" : `imbalance (LIT) ${operator.lit.toFixed(2)}`}</small>
          </h2>
          <div class="two">
            <div>
              <h3>Load by instance</h3>
              <Loads operator={operator} frame={frame} />
            </div>
            <div>
              <h3>Hottest keys</h3>
              <Keys operator={operator} />
            </div>
          </div>
        </section>
      ))}
    </div>
  );
}

function Loads({ operator, frame }: { operator: Operator; frame: Frame }) {
  const total = operator.rate.reduce((a, b) => a + b, 0);
  if (!total) return <Empty>No tuples in this batch.</Empty>;
  const mean = total / operator.parallelism;
  const most = Math.max(...operator.rate);
  const order = operator.rate.map((_, i) => i);
  if (order.length > DRAWN) order.sort((a, b) => (operator.rate[b] ?? 0) - (operator.rate[a] ?? 0));
  return (
    <>
      <div class="columns" role="img" aria-label={`${plural(operator.parallelism, "instance")}: busiest ${short(most)}/s, mean ${short(mean)}/s`}>
        {order.slice(0, DRAWN).map((i) => (
          <span key={i} class="column" title={`${operator.name}[${i}] on ${frame.nodes[operator.node[i] ?? -1]?.name ?? "?"}: ${short(operator.rate[i])}/s`}>
            <span class={`pillar ${nodeClass(operator.node[i] ?? -1)}`} style={{ height: `${(((operator.rate[i] ?? 0) / most) * 100).toFixed(1)}%` }} />
          </span>
        ))}
        <span class="mean" style={{ bottom: `${((mean / most) * 100).toFixed(1)}%` }} />
      </div>
      <p class="hint">
        busiest {short(most)}/s, mean {short(mean)}/s (line)
        {order.length > DRAWN && `; the ${DRAWN} busiest of ${order.length}`}
      </p>
    </>
  );
}

function Keys({ operator }: { operator: Operator }) {
  if (!operator.hot_keys.length && !operator.split.length) {
    return <Empty>None is hot, or rows were combined before they were sent.</Empty>;
  }
  const most = Math.max(1e-9, ...operator.hot_keys.map((key) => key.share ?? 0));
  const listed = new Set(operator.hot_keys.map((key) => key.hash));
  const others = operator.split.filter((key) => !listed.has(key.hash));
  return (
    <table class="tight">
      <thead><tr><th>Key</th><th>Share of the rows</th><th>Split over</th></tr></thead>
      <tbody>
        {operator.hot_keys.map((key) => (
          <tr key={key.hash} data-key={key.name ?? key.hash}>
            <td class="wrap key">{key.name ?? `#${key.hash.slice(0, 8)}`}</td>
            <td class="n"><Bar value={key.share} of={most} tone={!key.split.length && (key.share ?? 0) > 1 / operator.parallelism ? "warm" : ""} /> {share(key.share)}</td>
            <td>{key.split.length ? <em class="tag">{plural(key.split.length, "instance")}</em> : <span class="dim">not split</span>}</td>
          </tr>
        ))}
        {others.map((key) => (
          <tr key={key.hash}>
            <td class="wrap key">{key.name ?? `#${key.hash.slice(0, 8)}`}</td>
            <td class="dim">no longer hot</td>
            <td><em class="tag">{plural(key.instances.length, "instance")}</em></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
