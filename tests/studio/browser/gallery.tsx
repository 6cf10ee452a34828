/** The parts that views are made of, with data of a known shape: what no view of today shows is tried here. */

import { render } from "preact";
import { useState } from "preact/hooks";
import { Announcer } from "../../../src/whatwhere/studio/web/src/parts/announce";
import { Figure } from "../../../src/whatwhere/studio/web/src/parts/figure";
import { Lines, type LinesProps, linesSvg } from "../../../src/whatwhere/studio/web/src/parts/lines";
import { Scatter, scatterSvg } from "../../../src/whatwhere/studio/web/src/parts/scatter";
import { Table } from "../../../src/whatwhere/studio/web/src/parts/table";
import { startTheme } from "../../../src/whatwhere/studio/web/src/theme";
import "../../../src/whatwhere/studio/web/src/studio.css";

const COUNT = Number(new URLSearchParams(location.search).get("points") ?? 130_000);
let state = 7;
const random = () => (state = (Math.imul(state, 1103515245) + 12345) >>> 0) / 2 ** 32;
const normal = () => Math.sqrt(-2 * Math.log(random() + 1e-12)) * Math.cos(2 * Math.PI * random());
const group = Uint8Array.from({ length: COUNT }, () => Math.floor(8 * random()));
const points = {
  x: Float32Array.from(group, (g) => 3 * Math.cos(g) + normal()),
  y: Float32Array.from(group, (g) => 3 * Math.sin(g) + normal()),
  group,
};
const lines: LinesProps = {
  title: "Two curves",
  x: [1, 2, 4, 8],
  curves: [
    { name: "up", values: [0, 1, 2, 3] },
    { name: "gap", values: [3, null, 1, 0.5] },
  ],
  xLabel: "length",
  yLabel: "score",
  logX: true,
};
const rows = Array.from({ length: 100_000 }, (_, n) => n);

function Gallery() {
  const [chosen, choose] = useState<number | null>(null);
  const [selected, select] = useState<number[]>([]);
  const map = { title: "Map", points, name: (n: number) => `point ${n}`, chosen, choose, select, joined: chosen === null ? [] : [0, 1] };
  const columns = [{ title: "number", numeric: true, value: (n: number) => n }];
  return (
    <main>
      <h1>Gallery</h1>
      <Announcer />
      <Scatter {...map} groups={["a", "b", "c", "d", "e", "f", "g", "h"]} />
      <output id="chosen">{chosen}</output> <output id="selected">{selected.length}</output>
      <Figure title="Two curves" file="curves" svg={() => linesSvg(lines)} columns={columns} rows={[1, 2]} how="By hand.">
        <Lines {...lines} />
      </Figure>
      <Table caption="Many rows" columns={columns} rows={rows} />
    </main>
  );
}

Object.assign(globalThis, { points, svg: () => scatterSvg({ title: "Map", points, name: String, chosen: 3, choose: () => undefined }) });
startTheme();
render(<Gallery />, document.getElementById("studio")!);
