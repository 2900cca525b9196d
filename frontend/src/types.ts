/** What the API answers; /api/openapi.json says the same. */

export type Maybe<T> = T | null;

export interface Run {
  id: string;
  topology: string;
  strategy: string;
  status: "running" | "finished" | "stopped" | "failed";
  started_at_s: number;
  ended_at_s: Maybe<number>;
  rows_lost: Maybe<number>;
  rows_duplicated: Maybe<number>;
  virtual_time: boolean;
}

export interface Latency {
  p50: number;
  p95: number;
  p99: number;
  max: number;
}

export interface Summary {
  seconds: Maybe<number>;
  batches: number;
  rows_in: number;
  rows_out: number;
  rows_lost: Maybe<number>;
  rows_duplicated: Maybe<number>;
  rows_dropped: number;
  throughput: Maybe<number>;
  latency_ms: Maybe<Latency>;
  placement_honoured: Maybe<number>;
  local_bytes: number;
  host_local_bytes: number;
  remote_bytes: number;
  nodes_used: number;
  decisions: number;
  state: Maybe<string>;
}

export interface RunDetail extends Run {
  config: Record<string, unknown>;
  summary: Summary;
  first_batch: Maybe<number>;
  last_batch: Maybe<number>;
  plans: number[];
}

export type Column = Maybe<number>[];

export interface Series {
  t?: number[];
  batch?: number[];
  offered_per_s?: Column;
  processed_per_s?: Column;
  written_per_s?: Column;
  late_per_s?: Column;
  dropped_per_s?: Column;
  p50_ms?: Column;
  p95_ms?: Column;
  p99_ms?: Column;
  queue?: Column;
  nodes?: Column;
  batch_ms?: Column;
  remote_share?: Column;
  lin?: Column;
  lit: Record<string, Column>;
  phases: Record<string, Column>;
}

export interface Node {
  name: string;
  number: number;
  there: boolean;
  kept: boolean;
  instances: number;
  cpu: Maybe<number>;
  mem: Maybe<number>;
  planned: Maybe<number>;
  executors: string[];
}

export interface State {
  size_bytes: number;
  data: number;
  parity: number;
  fragments: string[];
  on_driver_bytes: number;
}

export interface HotKey {
  hash: string;
  name: Maybe<string>;
  share: Maybe<number>;
  split: number[];
}

export interface Operator {
  name: string;
  kind: string;
  layer: number;
  parallelism: number;
  in_per_s: number;
  out_per_s: number;
  lit: Maybe<number>;
  late_rows: number;
  watermark_s: Maybe<number>;
  node: number[];
  /** Executor of each instance; "" where it is not known. */
  executor: string[];
  rate: number[];
  cores: number[];
  busy: number[];
  state: State[];
  state_bytes: Maybe<number>;
  hot_keys: HotKey[];
  split: { hash: string; name: Maybe<string>; instances: number[] }[];
}

export interface Edge {
  source: string;
  target: string;
  grouping: string;
  per_s: Maybe<number>;
  remote_share: Maybe<number>;
}

export interface Plan {
  from_batch: number;
  strategy: string;
  feasible: boolean;
  breaks: string[];
  reasons: string[];
  cut_share: number;
  nodes_used: number;
}

export interface Frame {
  batch: number;
  t: number;
  detailed: boolean;
  nodes: Node[];
  operators: Operator[];
  edges: Edge[];
  plan: Maybe<Plan>;
  queue: number;
  batch_ms: number;
  lin: Maybe<number>;
  figures: Record<string, number>;
}

export interface Cost {
  max_node_load: number;
  cut_share: number;
}

export interface Decision {
  reasons: string[];
  measured: Record<string, number>;
  nodes_before: number;
  nodes_after: number;
  moves: string[];
  moved: number;
  partitions: number;
  woken: string[];
  released: string[];
  before: Maybe<Cost>;
  predicted: Maybe<Cost>;
  gained: Maybe<{ came: Maybe<boolean>; text: string }>;
}

export interface Happening {
  number: number;
  kind: string;
  t: number;
  batch: Maybe<number>;
  text: string;
  status: Maybe<string>;
  explanation: Maybe<string>;
  decision: Maybe<Decision>;
}

export interface News {
  status: Run["status"];
  series: Series;
  frame: Maybe<Frame>;
  events: Happening[];
}
