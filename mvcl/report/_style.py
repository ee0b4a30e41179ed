"""The style sheet of the page."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1c2330; --soft: #58616f; --grid: #ccd2da; --warn: #fff4d6;
  --s0: #0072b2; --s1: #d55e00; --s2: #00805c; --s3: #8b4fbf;
  --s4: #c2347f; --s5: #7a6a00; --s6: #008799; --s7: #5a6270; --s8: #8a5a2b; --s9: #c62828;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12151b; --card: #1b2028; --ink: #e8ebf0; --soft: #a4adba; --grid: #3d4653; --warn: #3a3115;
    --s0: #5ab4f0; --s1: #ff8a4c; --s2: #3fcf9f; --s3: #b995f2;
    --s4: #f27bb5; --s5: #d9c24a; --s6: #4cd3e3; --s7: #b8bcc4; --s8: #d2a679; --s9: #ff8f87;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
header { margin-bottom: 1.25rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0; overflow-wrap: anywhere; }
header p { color: var(--soft); margin: .25rem 0 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 0 0 .75rem; }
section, aside, .tiles > div {
  background: var(--card); border: 1px solid var(--grid); border-radius: 10px; padding: 1rem 1.15rem;
}
section, aside { margin: 0 0 1rem; }
aside.missing { background: var(--warn); overflow-wrap: anywhere; }
aside.missing ul { margin: 0; padding-left: 1.2rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: .75rem; margin: 0 0 1rem; }
.tiles > div { padding: .7rem .9rem; }
.tiles dt { color: var(--soft); font-size: .85rem; }
.tiles dd { margin: 0; font-size: 1.5rem; font-weight: 650; font-variant-numeric: tabular-nums; line-height: 1.25; }
.tiles small { color: var(--soft); }
.scroll { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; }
caption { text-align: left; overflow-wrap: anywhere; color: var(--soft); padding-bottom: .35rem; }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--grid); text-align: left; vertical-align: top; }
tbody tr:last-child > * { border-bottom: 0; }
th { font-weight: 600; }
.numbers td, .numbers thead th { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.numbers tbody tr:first-child { font-weight: 650; }
.tables .scroll:not(:only-child) table { font-size: .88rem; }
.tables .scroll:not(:only-child) :is(th, td) { padding: .35rem .4rem; }
.numbers small { color: var(--soft); font-weight: 400; }
.tables { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr)); gap: 1.25rem; }
.tables > *, .plots > * { min-width: 0; }
.protocols { margin: 1rem 0 0; font-size: .88rem; color: var(--soft); }
.protocols dt { font-weight: 600; color: var(--ink); }
.protocols dd { margin: 0 0 .4rem; overflow-wrap: anywhere; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 1.25rem; }
figure { margin: 0; min-width: 0; }
figcaption { font-size: .9rem; color: var(--soft); overflow-wrap: anywhere; }
figcaption b { color: var(--ink); }
svg.plot { display: block; width: 100%; height: auto; }
svg.plot text { font-family: system-ui, sans-serif; }
.map { display: grid; grid-template-columns: minmax(0, 2fr) minmax(0, 1fr); gap: 1rem; align-items: center; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .15rem 1rem; margin: 0 0 .75rem; padding: 0; }
.legend li { overflow-wrap: anywhere; }
.views th, .views td { padding: .2rem .3rem; border: 0; vertical-align: middle; }
.views tbody th { min-width: 4.5rem; max-width: 10rem; overflow-wrap: anywhere; }
.views thead th { font-weight: 400; color: var(--soft); font-size: .85rem; text-align: center; }
.views td:nth-child(2) { padding-right: .9rem; }
.views img { display: block; width: 72px; height: 72px; object-fit: contain; border: 1px solid var(--grid); }
img.sharp { image-rendering: pixelated; }
.config td { overflow-wrap: anywhere; }
.config span { display: inline-block; margin-right: .8rem; color: var(--soft); }
code, pre { font: .88em ui-monospace, monospace; color: var(--ink); }
details { margin-top: .75rem; }
summary { cursor: pointer; overflow-wrap: anywhere; }
pre { overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
@media (max-width: 640px) {
  main { padding: 1rem .6rem 2rem; }
  section, aside { padding: .85rem .8rem; }
  .map { grid-template-columns: minmax(0, 1fr); }
  th, td { padding: .3rem .45rem; }
}
"""
