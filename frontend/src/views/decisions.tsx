import { useState } from "preact/hooks";
import { clock, share } from "../format";
import type { Happening } from "../types";
import { adviceOf, Empty } from "./parts";

/** Go to a moment; undefined where there is none to go to. */
type Seek = ((t: number) => void) | undefined;

export function Decisions({ events, seek }: { events: Happening[]; seek: Seek }) {
  const [all, setAll] = useState(false);
  const decisions = events.filter((event) => event.kind === "decision" || event.kind === "note");
  const others = events.filter((event) => event.kind !== "decision" && event.kind !== "note");
  const advice = adviceOf(events, Infinity);
  return (
    <div class="stacked">
      {advice.length > 0 && (
        <section class="card" aria-label="Advice">
          <h2>Advice</h2>
          <ul class="reasons">{advice.map((text) => <li key={text}>{text}</li>)}</ul>
        </section>
      )}
      <section class="card" aria-label="Decisions">
        <h2>Decisions <small>the newest first; unfold one for its explanation</small></h2>
        {decisions.length ? (
          <ol class="decisions">{[...decisions].reverse().map((event) => <One key={event.number} event={event} seek={seek} />)}</ol>
        ) : <Empty>None so far.</Empty>}
      </section>
      <section class="card" aria-label="Other events">
        <h2>Other events</h2>
        {others.length ? (
          <>
            <table class="tight">
              <thead><tr><th>At</th><th>Kind</th><th>What</th></tr></thead>
              <tbody>
                {[...others].reverse().slice(0, all ? undefined : 12).map((event) => (
                  <tr key={event.number} data-event={event.kind}>
                    <td class="n">{seek ? <button type="button" class="link" onClick={() => seek(event.t)}>{clock(event.t)}</button> : clock(event.t)}</td>
                    <td>{event.kind}</td>
                    <td class="wrap">{event.text}</td>
                  </tr>
                ))}
              </tbody>
            </table>
            {others.length > 12 && <button type="button" class="quiet" onClick={() => setAll(!all)}>{all ? "Fewer" : `All ${others.length}`}</button>}
          </>
        ) : <Empty>None so far.</Empty>}
      </section>
    </div>
  );
}

const TONES: Record<string, string> = { done: "good", refused: "dim", failed: "bad", "given up": "bad", recommended: "dim", noted: "dim" };

function One({ event, seek }: { event: Happening; seek: Seek }) {
  const decision = event.decision;
  const [before, after] = [decision?.before, decision?.predicted];
  const changes = decision && (decision.moved || decision.partitions || decision.nodes_before !== decision.nodes_after);
  return (
    <li class="decision" data-decision={event.number} data-status={event.status ?? ""}>
      <details>
        <summary>
          <span class="when">{clock(event.t)}</span>
          <span class={`tag ${TONES[event.status ?? ""] ?? "busy"}`}>{event.status ?? event.kind}</span>
          <span class="wrap">{event.text}</span>
        </summary>
        {decision && changes ? (
          <dl class="changes">
            {decision.nodes_before !== decision.nodes_after && <Change name="Nodes" from={String(decision.nodes_before)} to={String(decision.nodes_after)} />}
            {before && after && <Change name="Busiest node" from={share(before.max_node_load)} to={share(after.max_node_load)} />}
            {before && after && <Change name="Across nodes" from={share(before.cut_share)} to={share(after.cut_share)} />}
            {decision.gained && <div><dt>Gained</dt><dd class={decision.gained.came === false ? "bad" : ""}>{decision.gained.text}</dd></div>}
          </dl>
        ) : null}
        <pre data-explanation={event.number} tabIndex={0}>{event.explanation}</pre>
        {seek && <button type="button" class="quiet" onClick={() => seek(event.t)}>Show that moment</button>}
      </details>
    </li>
  );
}

function Change({ name, from, to }: { name: string; from: string; to: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{from} <span aria-label="to">→</span> <b>{to}</b></dd>
    </div>
  );
}
