"""The style sheet of the report."""

from __future__ import annotations

#: Colours that people who see fewer colours tell apart too (after Okabe and Ito), with dashes.
STYLE = """
:root {
  color-scheme: light dark;
  --back: #f6f7f9; --card: #ffffff; --text: #1a2029; --dim: #5c6673; --line: #dfe3e8;
  --accent: #0b6fb8; --good: #117a4b; --bad: #b3261e;
  --s0: #0072b2; --s1: #d55e00; --s2: #008a68; --s3: #b0568f; --s4: #8a6d00; --s5: #3b7ea1;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #12161c; --card: #1b2129; --text: #e6e9ee; --dim: #9aa5b3; --line: #2f3843;
    --accent: #6cb8f0; --good: #5fd39a; --bad: #ff8a80;
    --s0: #56b4e9; --s1: #ff9d4d; --s2: #35c9a1; --s3: #e39ac6; --s4: #e0c341; --s5: #9fc9e0;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.25rem 1rem 3rem; max-width: 72rem;
  background: var(--back); color: var(--text);
  font: 16px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
h1 { font-size: 1.5rem; margin: 0 0 .15rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .75rem; }
.sub { color: var(--dim); margin: 0 0 1.25rem; overflow-wrap: anywhere; }
.cards { display: grid; gap: .6rem; grid-template-columns: repeat(auto-fill, minmax(9.2rem, 1fr)); }
.cards div, figure, .box {
  background: var(--card); border: 1px solid var(--line); border-radius: 8px;
}
.cards div { padding: .55rem .75rem; }
.cards dt { color: var(--dim); font-size: .8rem; }
.cards dd { margin: 0; font-size: 1.2rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.cards small { display: block; font-weight: 400; font-size: .78rem; color: var(--dim); }
.cards dl { margin: 0; }
.good { color: var(--good); } .bad { color: var(--bad); }
.charts {
  display: grid; gap: .9rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr));
}
figure { margin: 0; padding: .7rem .75rem .4rem; }
figcaption { font-weight: 600; }
figcaption small { font-weight: 400; color: var(--dim); }
figure > svg { display: block; width: 100%; height: auto; margin-top: .3rem; }
svg text { font-size: 12px; fill: var(--dim); font-variant-numeric: tabular-nums; }
svg .y { text-anchor: end; } svg .x, svg .tag { text-anchor: middle; }
svg .small, svg .tag { font-size: 11px; }
.grid { stroke: var(--line); stroke-width: 1; fill: none; }
.axis { stroke: var(--dim); stroke-width: 1; fill: none; }
.mark { stroke: var(--dim); stroke-width: 1; stroke-dasharray: 2 3; fill: none; }
.mark.decision { stroke: var(--accent); stroke-width: 1.25; stroke-dasharray: 4 2; }
.line { fill: none; stroke-width: 1.75; stroke-linejoin: round; }
.s0 { stroke: var(--s0); } .s1 { stroke: var(--s1); stroke-dasharray: 7 3; }
.s2 { stroke: var(--s2); stroke-dasharray: 2 2.5; }
.s3 { stroke: var(--s3); stroke-dasharray: 9 2 2 2; }
.s4 { stroke: var(--s4); stroke-dasharray: 12 3; } .s5 { stroke: var(--s5); stroke-dasharray: 4 4; }
.dot { stroke: none; }
.dot.s0 { fill: var(--s0); } .dot.s1 { fill: var(--s1); } .dot.s2 { fill: var(--s2); }
.dot.s3 { fill: var(--s3); } .dot.s4 { fill: var(--s4); } .dot.s5 { fill: var(--s5); }
.legend { display: flex; flex-wrap: wrap; gap: .1rem .9rem; font-size: .82rem; color: var(--dim); }
.legend .key { width: 24px; height: 8px; margin-right: .35rem; vertical-align: middle; }
.none { color: var(--dim); margin: .6rem 0; }
.box { overflow-x: auto; }
.finding { margin: .6rem 0; padding: .6rem .75rem; overflow-wrap: anywhere; font-size: .95rem; }
.finding p { margin: .5rem 0 0; } .finding .sub { margin: 0 0 .2rem; font-size: .82rem; }
.finding + .charts, .cards + .charts { margin-top: .9rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td {
  text-align: left; vertical-align: top; padding: .45rem .75rem;
  border-top: 1px solid var(--line);
}
thead th { border-top: 0; color: var(--dim); font-weight: 600; white-space: nowrap; }
td.n { font-variant-numeric: tabular-nums; white-space: nowrap; }
td.wide { min-width: 15rem; overflow-wrap: anywhere; }
pre {
  margin: 0; padding: .75rem; overflow-x: auto; font-size: .8rem;
  white-space: pre-wrap; overflow-wrap: anywhere;
}
details summary { cursor: pointer; color: var(--dim); }
details.box > summary { padding: .5rem .75rem; }
ul { margin: .3rem 0 0; padding-left: 1.2rem; }
@media print { body { max-width: none; } figure, tr { break-inside: avoid; } }
"""
