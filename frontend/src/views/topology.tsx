import { Chart } from "../chart";
import { nodeClass } from "../colours";
import { Graph } from "../graph";
import { bytes, millis, perSecond, plural, share, short } from "../format";
import type { Frame, Node, Operator } from "../types";
import type { TimeProps } from "./nodes";
import { adviceOf, Bar, Empty, Load, NodeChip } from "./parts";

/** Nodes that are listed beside the graph; of more, the busiest. */
const LISTED = 16;

export function Topology({ frame, chosen, choose, series, events, at, seek, theme }: TimeProps & { frame: Frame; chosen: string | null; choose: (name: string | null) => void }) {
  const operator = frame.operators.find((one) => one.name === chosen);
  const shared = { t: series.t ?? [], marks: events, at, seek, theme };
  return (
    <div class="split">
     <div class="stacked">
      <section class="card" aria-label="Topology">
        <h2>Topology {!frame.detailed && <small>the detail of this batch was rolled up; the plan is shown</small>}</h2>
        <Graph frame={frame} chosen={chosen} choose={choose} />
        <p class="hint">
          Numbers and colours say on which node an instance runs. Edges are as wide as their rate;{" "}
          <span class="ink-local">blue</span> stays on a node, <span class="ink-remote">orange</span> crosses nodes. Choose an operator for its instances.
        </p>
      </section>
      <div class="charts">
        <Chart {...shared} title="Rows per second" show={perSecond} lines={[{ label: "offered", values: series.offered_per_s }, { label: "processed", values: series.processed_per_s }]} />
        <Chart {...shared} title="Latency" note="source to commit" show={millis} lines={[{ label: "p50", values: series.p50_ms }, { label: "p95", values: series.p95_ms }]} />
      </div>
     </div>
      <aside class="side">{operator ? <OperatorDetail operator={operator} frame={frame} close={() => choose(null)} /> : <NodeList frame={frame} advice={adviceOf(events, frame.t)} />}</aside>
    </div>
  );
}

function NodeList({ frame, advice }: { frame: Frame; advice: string[] }) {
  const there = frame.nodes.filter((node) => node.there);
  const gone = frame.nodes.filter((node) => !node.there).slice(-6);
  const some = there.length > LISTED;
  const listed = some ? [...there].sort((a, b) => (b.cpu ?? -1) - (a.cpu ?? -1) || a.number - b.number).slice(0, LISTED) : there;
  return (
    <section class="card" aria-label="Nodes now">
      <h2>
        Nodes <small>{plural(there.length, "node")}, {there.filter((n) => n.instances).length} in use; bars: CPU</small>
      </h2>
      <ul class="nodes">
        {listed.map((node) => <NodeRow key={node.name} node={node} />)}
        {gone.map((node) => <NodeRow key={node.name} node={node} />)}
      </ul>
      {some && <Empty>the {LISTED} busiest; <a href={location.hash.replace(/[^/]*$/, "nodes")}>all {there.length} nodes</a></Empty>}
      {frame.plan && (
        <>
          <h3>Why this plan</h3>
          <ul class="reasons">{frame.plan.reasons.map((reason) => <li key={reason}>{reason}</li>)}</ul>
        </>
      )}
      {advice.length > 0 && (
        <>
          <h3>Advice</h3>
          <ul class="reasons" data-advice>{advice.map((text) => <li key={text}>{text}</li>)}</ul>
        </>
      )}
    </section>
  );
}

export function NodeRow({ node }: { node: Node }) {
  return (
    <li class={node.there ? "node-row" : "node-row gone"} data-node={node.name} data-there={String(node.there)}>
      <i class={`instance ${node.there ? nodeClass(node.number) : "node-none"}`}>{node.number}</i>
      <span class="node-name">{node.name}</span>
      {node.there ? <Load value={node.cpu} /> : <span class="dim">gone</span>}
      <span class="dim">{node.there ? (node.instances ? plural(node.instances, "instance") : "idle") : ""}</span>
    </li>
  );
}

export function OperatorDetail({ operator, frame, close }: { operator: Operator; frame: Frame; close: () => void }) {
  const most = Math.max(1e-9, ...operator.rate);
  const order = operator.rate.map((_, index) => index).sort((a, b) => (operator.rate[b] ?? 0) - (operator.rate[a] ?? 0));
  return (
    <section class="card" aria-label={`Operator ${operator.name}`} data-detail={operator.name}>
      <h2 class="with-close">
        <span class="wrap">{operator.name}</span>
        <button type="button" class="quiet" onClick={close} aria-label="Close">✕</button>
      </h2>
      <dl class="facts">
        <dt>Kind</dt><dd>{operator.kind}</dd>
        <dt>Instances</dt><dd>{operator.parallelism}</dd>
        <dt>In, out</dt><dd>{perSecond(operator.in_per_s)}, {perSecond(operator.out_per_s)}</dd>
        <dt>Imbalance (LIT)</dt><dd>{operator.lit === null ? "–" : operator.lit.toFixed(2)}</dd>
        {operator.state_bytes !== null && (<><dt>State</dt><dd>{bytes(operator.state_bytes)}</dd></>)}
      </dl>
      <div class="scroll-box" tabIndex={0} role="region" aria-label="Instances, the busiest first">
        <table class="tight">
          <thead><tr><th>Instance</th><th>Runs on</th><th>Rate</th><th>Cores</th></tr></thead>
          <tbody>
            {order.slice(0, 200).map((index) => (
              <tr key={index}>
                <td>[{index}]</td>
                <td><NodeChip frame={frame} number={operator.node[index] ?? -1} executor={operator.executor[index]} /></td>
                <td class="n"><Bar value={operator.rate[index] ?? 0} of={most} /> {short(operator.rate[index])}/s</td>
                <td class="n">{share(operator.cores[index])}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {order.length > 200 && <Empty>the 200 busiest of {order.length}</Empty>}
    </section>
  );
}
