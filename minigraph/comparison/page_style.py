"""Style sheets of a report's page and of its cell in a notebook."""

from typing import Final

STYLE: Final = """\
:root { color-scheme: light dark; --page: #ffffff; --card: #f6f7f9; --ink: #1f2328; --muted: #737a82; --faint: #dfe2e6;
  --accent: #0072b2; --added: #116329; --added-back: #e6f6ea; --removed: #a40e26; --removed-back: #ffebe9;
  --shadow: #00000038;
  --line-0: #0072b2; --line-1: #d55e00; --line-2: #009e73; --line-3: #b0558a; --line-4: #b8860b; --line-5: #2f9bd8; }
@media (prefers-color-scheme: dark) { :root { --page: #14171a; --card: #1d2125; --ink: #e4e7ea; --muted: #9aa2aa;
  --faint: #363c42; --accent: #6cb8ee; --added: #7ee2a0; --added-back: #16301f; --removed: #ff9a94;
  --removed-back: #3a1a1c; --shadow: #ffffff40; --line-0: #5aa9e6; --line-1: #ff8a4c; --line-2: #3ecf9f;
  --line-3: #e39bc8; --line-4: #e2b93b; --line-5: #8fd3ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem 1rem 4rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0.5rem 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 0.75rem; border-bottom: 1px solid var(--faint); padding-bottom: 0.3rem; }
h3 { font-size: 1.05rem; margin: 2rem 0 0.5rem; }
a { color: var(--accent); }
.finding { font-size: 1.15rem; line-height: 1.4; max-width: 48rem; }
.note { margin: 0.5rem 0; color: var(--muted); }
.warning { border-left: 4px solid var(--removed); background: var(--removed-back); padding: 0.6rem 1rem; }
nav { display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; margin-top: 1rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.15rem 1.25rem; margin: 0.75rem 0;
  font-size: 0.92rem; }
dt { color: var(--muted); } dd { margin: 0; }
/* A shadow at the edge behind which a table goes on: the covers scroll with the table, the shadows do not. */
.scroll { overflow-x: auto; max-width: max-content; background:
  linear-gradient(to right, var(--page) 1.5rem, transparent 3rem) 0 0 / 3rem 100% no-repeat local,
  linear-gradient(to left, var(--page) 1.5rem, transparent 3rem) 100% 0 / 3rem 100% no-repeat local,
  linear-gradient(to right, var(--shadow), transparent) 0 0 / 0.9rem 100% no-repeat scroll,
  linear-gradient(to left, var(--shadow), transparent) 100% 0 / 0.9rem 100% no-repeat scroll; }
.scroll + .scroll { margin-top: 1rem; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
caption { text-align: left; color: var(--muted); padding: 0.25rem 0; }
caption span { position: sticky; left: 0; display: inline-block; max-width: calc(100vw - 2rem); }
th, td { padding: 0.3rem 0.8rem; text-align: right; border-bottom: 1px solid var(--faint); white-space: nowrap; }
th:first-child { text-align: left; } thead th { vertical-align: bottom; font-weight: 600; }
tbody th { font-weight: 500; } tr.together th, tr.together td { font-weight: 700; border-top: 2px solid var(--muted); }
.shade { background: color-mix(in srgb, var(--accent) var(--share), transparent); }
.scale span { padding: 0.1rem 0.7rem; font-variant-numeric: tabular-nums; }
.legend { display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; list-style: none; margin: 0.75rem 0; padding: 0;
  font-size: 0.92rem; }
.legend svg { vertical-align: middle; } .legend .line { stroke-width: 2; fill: none; }
.figures { margin: 0.75rem 0; display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); }
.pairs { grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); }
figure { margin: 0; background: var(--card); border-radius: 8px; padding: 0.5rem; min-width: 0; }
figure svg { display: block; width: 100%; height: auto; }
figcaption { font-size: 0.85rem; padding: 0 0.25rem 0.4rem; }
details { margin: 0.75rem 0; } summary { cursor: pointer; color: var(--accent); }
pre { background: var(--card); border-radius: 8px; padding: 0.75rem; overflow-x: auto; font: 12.5px/1.45 ui-monospace,
  "DejaVu Sans Mono", monospace; }
pre ins { color: var(--added); background: var(--added-back); text-decoration: none; }
pre del { color: var(--removed); background: var(--removed-back); text-decoration: none; }
footer { margin-top: 3rem; color: var(--muted); font-size: 0.85rem; }
@media (max-width: 30rem) { th, td { padding: 0.3rem 0.5rem; } dl { grid-template-columns: 1fr; }
  dd { margin-bottom: 0.4rem; } }
"""

# A notebook has its own page, light or dark, and its own style of tables: text takes its colour.
NOTEBOOK_STYLE: Final = """\
.minigraph-report { --ink: currentColor; --muted: #808890; --faint: #80889060; --line-0: #2f8fd0; --line-1: #e06a1a;
  --line-2: #12a97c; --line-3: #c97bae; --line-4: #c2962a; --line-5: #5ab4e6; }
.minigraph-report caption { text-align: left; }
.minigraph-report td, .minigraph-report th { padding: 0.1rem 0.6rem; text-align: right; }
.minigraph-report th:first-child { text-align: left; }
.minigraph-report .legend { display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; list-style: none; padding: 0; }
.minigraph-report .legend svg { vertical-align: middle; } .minigraph-report .line { stroke-width: 2; fill: none; }
.minigraph-report figure { margin: 0; max-width: 30rem; } .minigraph-report figure svg { width: 100%; height: auto; }
"""
