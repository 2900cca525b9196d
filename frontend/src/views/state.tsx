import { bytes, clock, moment, perSecond, plural } from "../format";
import type { Frame, Happening, Operator, RunDetail, Series } from "../types";
import { indexAt } from "../chart";
import { Bar, Empty, NodeChip } from "./parts";

/** Instances that are listed one by one. */
const LISTED = 100;

/** Say what may be lost, where no event of the run says it. */
function promised(run: RunDetail): string {
  if (run.config.attached) return "Spark keeps this state in its checkpoint: who loses an executor loses none of it.";
  if (run.virtual_time) return "A simulation models how large state is and how long it moves, not where its fragments are.";
  return "Nothing was said of the state yet.";
}

export function StateView({ frame, events, series, run }: { frame: Frame; events: Happening[]; series: Series; run: RunDetail }) {
  const before = events.filter((event) => event.t <= frame.t + 0.5);
  const promise = [...before].reverse().find((event) => event.kind === "state");
  const moves = before.filter((event) => event.kind === "move").slice(-8).reverse();
  const under = before.filter((event) => event.kind === "decision" && ["moving", "waiting for nodes", "releasing nodes"].includes(event.status ?? ""));
  const kept = frame.operators.filter((operator) => operator.state.length);
  const windowed = frame.operators.filter((operator) => operator.watermark_s !== null);
  const at = indexAt(series.t ?? [], frame.t);
  return (
    <div class="stacked">
      <section class="card promise" aria-label="What may be lost now">
        <h2>What may be lost now</h2>
        <p class="big" data-promise>{promise ? promise.text : promised(run)}</p>
        {under.map((event) => <p key={event.number}><em class="tag">{event.status}</em> {event.text}</p>)}
      </section>
      {kept.map((operator) => <Kept key={operator.name} operator={operator} frame={frame} byPeers={!run.config.attached} />)}
      {!kept.length && !run.virtual_time && <section class="card"><Empty>No operator keeps state, or none was looked at yet.</Empty></section>}
      <section class="card" aria-label="Event time">
        <h2>Event time</h2>
        {windowed.length ? (
          <table class="tight">
            <thead><tr><th>Operator</th><th>Watermark</th><th>Late rows</th></tr></thead>
            <tbody>
              {windowed.map((operator) => (
                <tr key={operator.name}>
                  <td class="wrap">{operator.name}</td>
                  <td class="n">{operator.watermark_s! > 1e8 ? moment(operator.watermark_s!) : clock(operator.watermark_s)}</td>
                  <td class="n">{operator.late_rows} in these batches</td>
                </tr>
              ))}
            </tbody>
          </table>
        ) : <Empty>No operator has windows.</Empty>}
        <p class="hint">Late rows now: {perSecond(series.late_per_s?.[at] ?? 0)}</p>
      </section>
      <section class="card" aria-label="Moves">
        <h2>Moves of state</h2>
        {moves.length ? (
          <ul class="reasons">{moves.map((event) => <li key={event.number}><span class="dim">{clock(event.t)}</span> {event.text}</li>)}</ul>
        ) : <Empty>None so far.</Empty>}
      </section>
    </div>
  );
}

function Kept({ operator, frame, byPeers }: { operator: Operator; frame: Frame; byPeers: boolean }) {
  const most = Math.max(1, ...operator.state.map((one) => one.size_bytes));
  const numbers = new Map(frame.nodes.map((node) => [node.name, node]));
  return (
    <section class="card" aria-label={`State of ${operator.name}`} data-state={operator.name}>
      <h2 class="wrap">{operator.name} <small>{bytes(operator.state_bytes)} in {plural(operator.parallelism, "instance")}</small></h2>
      <div class="scroll" tabIndex={0} role="region" aria-label={`Instances of ${operator.name}`}>
        <table class="tight">
          <thead><tr><th>Instance</th><th>Runs on</th><th>Size</th>{byPeers && <><th>Fragments</th><th>Held by the driver</th></>}</tr></thead>
          <tbody>
            {operator.state.slice(0, LISTED).map((one, index) => (
              <tr key={index}>
                <td>[{index}]</td>
                <td><NodeChip frame={frame} number={operator.node[index] ?? -1} executor={operator.executor[index]} /></td>
                <td class="n"><Bar value={one.size_bytes} of={most} /> {bytes(one.size_bytes)}</td>
                {byPeers && <td>
                  {one.fragments.length ? (
                    <span class="fragments">
                      {one.fragments.map((name, i) => {
                        const node = numbers.get(name);
                        const lost = !node || !node.there;
                        return (
                          <i key={i} class={`instance ${lost ? "lost" : `node-${node.number % 10}`} ${i >= one.data ? "parity" : ""}`}
                            title={`${i >= one.data ? "parity" : "data"} fragment ${i}: ${lost ? "lost" : name}`}>{lost ? "×" : node.number}</i>
                        );
                      })}
                      <small class="dim">{one.data} data + {one.parity} parity</small>
                    </span>
                  ) : <span class="dim">none yet</span>}
                </td>}
                {byPeers && <td class="n">{bytes(one.on_driver_bytes)}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {operator.state.length > LISTED && <Empty>the first {LISTED} of {operator.state.length}</Empty>}
    </section>
  );
}
