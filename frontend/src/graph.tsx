/** The topology in layers: operators as boxes, instances coloured by node, edges as wide as their rate. */

import dagre from "@dagrejs/dagre";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { nodeClass } from "./colours";
import { bytes, perSecond, plural, share } from "./format";
import type { Edge, Frame, Operator } from "./types";

const WIDTH = 208;

/** Instances that are drawn with the number of their node, drawn at all, and above that added up. */
const NUMBERED = 40;
const DRAWN = 160;

const KINDS: Record<string, string> = { source: "source", stateless: "stateless", stateful: "stateful" };

/** Characters of an operator's name that are drawn: its tail says more than its middle. */
const NAME = 66;

function shortened(name: string): string {
  return name.length > NAME ? `${name.slice(0, 44)}…${name.slice(-20)}` : name;
}

function rows(operator: Operator): number {
  if (operator.parallelism > DRAWN) return 1;
  return Math.ceil(operator.parallelism / (operator.parallelism > NUMBERED ? 16 : 9));
}

function height(operator: Operator): number {
  const each = operator.parallelism > DRAWN ? 40 : operator.parallelism > NUMBERED ? 12 : 21;
  const lines = Math.ceil(shortened(operator.name).length / 22);
  return 62 + 20 * Math.max(1, lines) + each * rows(operator) + (operator.state_bytes !== null ? 20 : 0) + (operator.split.length ? 22 : 0);
}

interface Placed {
  width: number;
  height: number;
  boxes: Map<string, { x: number; y: number; height: number }>;
  paths: Map<string, { d: string; x: number; y: number }>;
}

function keyOf(edge: { source: string; target: string }): string {
  return `${edge.source}\u0000${edge.target}`;
}

function arranged(operators: Operator[], edges: Edge[], narrow: boolean): Placed {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: narrow ? "TB" : "LR", nodesep: narrow ? 24 : 28, ranksep: narrow ? 58 : 128, marginx: 12, marginy: 12 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const one of operators) graph.setNode(one.name, { width: WIDTH, height: height(one) });
  for (const edge of edges) graph.setEdge(edge.source, edge.target);
  dagre.layout(graph);
  const boxes: Placed["boxes"] = new Map();
  for (const one of operators) {
    const at = graph.node(one.name) as { x: number; y: number; height: number };
    boxes.set(one.name, { x: at.x - WIDTH / 2, y: at.y - at.height / 2, height: at.height });
  }
  const paths: Placed["paths"] = new Map();
  for (const edge of edges) {
    const { points } = graph.edge(edge.source, edge.target) as { points: { x: number; y: number }[] };
    const middle = points[Math.floor(points.length / 2)]!;
    paths.set(keyOf(edge), { d: curve(points, narrow), x: middle.x, y: middle.y });
  }
  const { width = 0, height: tall = 0 } = graph.graph() as { width?: number; height?: number };
  return { width, height: tall, boxes, paths };
}

function curve(points: { x: number; y: number }[], narrow: boolean): string {
  const [first, ...rest] = points;
  let d = `M${first!.x},${first!.y}`;
  let before = first!;
  for (const next of rest) {
    const half = narrow ? (next.y - before.y) / 2 : (next.x - before.x) / 2;
    d += narrow
      ? `C${before.x},${before.y + half} ${next.x},${next.y - half} ${next.x},${next.y}`
      : `C${before.x + half},${before.y} ${next.x - half},${next.y} ${next.x},${next.y}`;
    before = next;
  }
  return d;
}

export interface GraphProps {
  frame: Frame;
  chosen: string | null;
  /** Called when a reader chooses an operator; without it operators cannot be chosen. */
  choose?: (operator: string | null) => void;
}

export function Graph({ frame, chosen, choose }: GraphProps) {
  const outer = useRef<HTMLDivElement>(null);
  const [room, setRoom] = useState(1000);
  useEffect(() => {
    if (!outer.current) return;
    const watcher = new ResizeObserver((entries) => setRoom(entries[0]?.contentRect.width ?? 1000));
    watcher.observe(outer.current);
    return () => watcher.disconnect();
  }, []);
  const narrow = room < 640;
  const shape = JSON.stringify([
    frame.operators.map((o) => [o.name, o.parallelism, o.state_bytes === null, o.split.length > 0]),
    frame.edges.map((e) => [e.source, e.target]),
    narrow,
  ]);
  const placed = useMemo(() => arranged(frame.operators, frame.edges, narrow), [shape]);
  const most = Math.max(1, ...frame.edges.map((edge) => edge.per_s ?? 0));
  const scale = Math.min(1, (room - 2) / Math.max(1, placed.width));
  const fit = scale > 0.55 ? scale : 1;
  return (
    <div class="graph" ref={outer} data-operators={frame.operators.length}>
      <div class="canvas" style={{ width: `${placed.width * fit}px`, height: `${placed.height * fit}px` }}>
        <div class="scaled" style={{ width: `${placed.width}px`, height: `${placed.height}px`, transform: `scale(${fit})` }}>
          <svg width={placed.width} height={placed.height} aria-hidden="true">
            {frame.edges.map((edge) => {
              const way = placed.paths.get(keyOf(edge));
              if (!way) return null;
              const wide = edge.per_s ? 1.5 + 11 * Math.sqrt(edge.per_s / most) : 1;
              const remote = Math.round((edge.remote_share ?? 0) * 100);
              return (
                <path
                  key={keyOf(edge)}
                  d={way.d}
                  class={edge.per_s ? "edge" : "edge idle"}
                  style={{ stroke: `color-mix(in srgb, var(--remote) ${remote}%, var(--local))`, strokeWidth: `${wide.toFixed(1)}px` }}
                />
              );
            })}
          </svg>
          {frame.edges.map((edge) => {
            const way = placed.paths.get(keyOf(edge));
            if (!way) return null;
            return (
              <span key={keyOf(edge)} class="edge-label" style={{ left: `${way.x}px`, top: `${way.y}px` }}
                data-edge={`${edge.source}→${edge.target}`} title={`${edge.source} to ${edge.target}: ${edge.grouping || "rows"}`}>
                {perSecond(edge.per_s)}
                {edge.remote_share !== null && <small>{share(edge.remote_share)} remote</small>}
              </span>
            );
          })}
          {frame.operators.map((operator) => {
            const at = placed.boxes.get(operator.name)!;
            const shared = {
              "data-operator": operator.name,
              "data-placement": operator.node.join(","),
              style: { left: `${at.x}px`, top: `${at.y}px`, width: `${WIDTH}px`, minHeight: `${at.height}px` },
            };
            if (!choose) return <div key={operator.name} class="operator fixed" {...shared}><OperatorBox operator={operator} frame={frame} /></div>;
            return (
              <button key={operator.name} type="button" class={chosen === operator.name ? "operator chosen" : "operator"}
                aria-pressed={chosen === operator.name} {...shared}
                onClick={() => choose(chosen === operator.name ? null : operator.name)}>
                <OperatorBox operator={operator} frame={frame} />
              </button>
            );
          })}
        </div>
      </div>
    </div>
  );
}

function OperatorBox({ operator, frame }: { operator: Operator; frame: Frame }) {
  const split = operator.split.length;
  return (
    <>
      <span class="operator-name" title={operator.name}>{shortened(operator.name)}</span>
      <span class="operator-kind">
        {KINDS[operator.kind] ?? operator.kind} · {plural(operator.parallelism, "instance")}
      </span>
      {split > 0 && <span><em class="tag accent">{plural(split, "hot key")} split</em></span>}
      <Instances operator={operator} frame={frame} />
      <span class="operator-rate">
        <b>{perSecond(operator.in_per_s)}</b> in · {perSecond(operator.out_per_s)} out
      </span>
      {operator.state_bytes !== null && <span class="operator-rate">{bytes(operator.state_bytes)} of state</span>}
    </>
  );
}

/** Each instance a square, or how many each node has where there are many. */
export function Instances({ operator, frame }: { operator: Operator; frame: Frame }) {
  if (operator.parallelism > DRAWN) {
    const counts = new Map<number, number>();
    for (const node of operator.node) counts.set(node, (counts.get(node) ?? 0) + 1);
    const order = [...counts].sort((a, b) => a[0] - b[0]);
    const sizes = order.map(([, count]) => count);
    const [least, most] = [Math.min(...sizes), Math.max(...sizes)];
    return (
      <>
      <span class="stack" title={`on ${plural(counts.size, "node")}`}>
        {order.map(([node, count]) => (
          <span key={node} class={`part ${nodeClass(node)}`} style={{ flexGrow: count }} />
        ))}
      </span>
      <span class="operator-rate">on {plural(counts.size, "node")}, {least === most ? `${most}` : `${least} to ${most}`} each</span>
      </>
    );
  }
  const small = operator.parallelism > NUMBERED;
  return (
    <span class={small ? "instances small" : "instances"}>
      {operator.node.map((node, index) => (
        <i key={index} class={`instance ${nodeClass(node)}`} title={`${operator.name}[${index}] on ${frame.nodes[node]?.name ?? "no node"}`}>
          {small ? "" : node >= 0 ? node : "?"}
        </i>
      ))}
    </span>
  );
}
