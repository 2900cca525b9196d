/** Small parts that several views share. */

import type { ComponentChildren } from "preact";
import { nodeClass } from "../colours";
import { share, UNKNOWN } from "../format";
import type { Frame, Happening, Maybe } from "../types";

export function Bar({ value, of = 1, tone = "" }: { value: Maybe<number>; of?: number; tone?: string }) {
  const part = value === null || of <= 0 ? 0 : Math.min(1, value / of);
  return (
    <span class="bar" aria-hidden="true">
      <span class={`fill ${tone}`} style={{ width: `${(part * 100).toFixed(1)}%` }} />
    </span>
  );
}

export function Load({ value }: { value: Maybe<number> }) {
  const tone = value === null ? "" : value > 0.9 ? "high" : value > 0.7 ? "warm" : "";
  return (
    <span class="load">
      <Bar value={value} tone={tone} /> <b>{value === null ? UNKNOWN : share(value)}</b>
    </span>
  );
}

/** A node, and the executor on it where the node's name does not say which. */
export function NodeChip({ frame, number, executor = "" }: { frame: Frame; number: number; executor?: string | undefined }) {
  const node = frame.nodes[number];
  const more = executor && node && !node.name.endsWith(executor) ? `executor ${executor}` : "";
  return (
    <span class="chip">
      <i class={`instance ${nodeClass(number)}`}>{number >= 0 ? number : "?"}</i> <span class="node-name">{node?.name ?? "no node"}{more && <small> {more}</small>}</span>
    </span>
  );
}

const ADVICE = /^advice:\s*/i;

/** What an attached query's owner could do, each once, as it was first told up to a moment. */
export function adviceOf(events: Happening[], t: number): string[] {
  const told = events.filter((event) => event.kind === "attached" && event.t <= t + 0.5 && ADVICE.test(event.text));
  return [...new Set(told.map((event) => event.text.replace(ADVICE, "")))];
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="none">{children}</p>;
}
