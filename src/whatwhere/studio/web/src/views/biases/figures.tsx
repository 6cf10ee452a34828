/** The figures of biases: the matrix of one head, the curves of all by distance, and the effective range of each. */

import { useMemo } from "preact/hooks";
import { whole } from "../../numbers";
import { Bars, barsSvg } from "../../parts/bars";
import { Choice, Flag } from "../../parts/choice";
import { Figure } from "../../parts/figure";
import { HeatFigure, LineFigure, numberColumn } from "../../parts/figures";
import type { HeatProps } from "../../parts/heat";
import { type Curve, type LinesProps, strokeOf } from "../../parts/lines";
import { DEEP_BIASES, readableBiases } from "../../parts/plot";
import type { ViewProps } from "../../register";
import type { Settings } from "../../source";
import type { BiasFindings } from "../../types";
import type { Tensor } from "../../wire";

const MOST_CURVES = 8;

const SHARES = ["0.5", "0.1", "0.01", "0.001"].map((share) => [share, `${100 * Number(share)} %`] as const);

export type BiasProps = { bias: BiasFindings; settings: Settings; change: ViewProps["change"] };

export function Matrix({ bias, weights }: { bias: BiasFindings; weights: boolean }) {
  const { values, shape } = bias.matrix;
  const [rows = 0, columns = 0] = shape;
  const queries = `ww.positions(${rows})${bias.causal ? ", causal=True" : ""}`;
  const heat: HeatProps = useMemo(
    () => ({
      title: `${weights ? "Weight" : "Bias"} of head ${bias.head}, query by key`,
      values,
      rows,
      columns,
      rowName: (row) => `query ${row}`,
      columnName: (column) => `key ${column}`,
      xLabel: "key",
      yLabel: "query",
      square: true,
      barLabel: weights ? "weight" : "bias",
      map: weights ? "amount" : "signed",
      cell: 7,
    }),
    [bias],
  );
  const cells = useMemo(() => Array.from(values, (_, n) => n).filter((n) => Number.isFinite(values[n])), [bias]);
  return (
    <HeatFigure
      heat={heat}
      note="Empty are keys that the scheme excludes; a causal mask hides all above the diagonal."
      file={`bias-matrix-${bias.scheme}`}
      width={520}
      table={{
        rows: cells,
        columns: [
          { title: "query", numeric: true, value: (n) => Math.floor(n / columns) },
          { title: "key", numeric: true, value: (n) => n % columns },
          numberColumn(weights ? "weight" : "bias", (n: number) => values[n]),
        ],
      }}
      code={`${bias.python}\nscheme(${queries})[0, ${bias.head}]`}
      how={
        <p>
          What the scheme adds to the score of each query and key, by its own formula.{" "}
          {weights && "As weights: exp(bias − the greatest of the matrix)."}
        </p>
      }
    />
  );
}

/** Return the heads to draw: all, or as many as can be distinguished, with the chosen one. */
function headsShown({ heads, head }: BiasFindings): number[] {
  if (heads <= MOST_CURVES) return Array.from({ length: heads }, (_, n) => n);
  const even = Array.from({ length: MOST_CURVES - 1 }, (_, k) => Math.round((k * (heads - 1)) / (MOST_CURVES - 2)));
  return [...new Set([...even, head])].sort((a, b) => a - b);
}

export function CurvesOf({ bias, settings, change }: BiasProps) {
  const log = settings["log"] === true;
  const count = bias.distances.values.length;
  const at = (tensor: Tensor, head: number, n: number) => tensor.values[head * count + n]!;
  const lines: LinesProps = useMemo(() => {
    const first = log ? 1 : 0;
    const x = Array.from(bias.distances.values).slice(first);
    const curves = headsShown(bias).map((head, k): Curve => {
      const values = x.map((_, n) => at(bias.past, head, n + first));
      return { name: `head ${head}`, values, color: k, ...strokeOf(k) };
    });
    if (bias.later) {
      const later = bias.later;
      curves.push({
        name: `head ${bias.head}, later keys`,
        values: x.map((_, n) => at(later, bias.head, n + first)),
        color: 0,
        dash: [1, 3],
      });
    }
    const reached = bias.ranges.distance.values[bias.head]!;
    return {
      title: `${settings["weights"] ? "Weight" : "Bias"} by distance`,
      x,
      curves,
      xLabel: "distance",
      yLabel: settings["weights"] ? "weight" : "bias",
      logX: log,
      ...(settings["all"] || settings["weights"] ? {} : readableBiases(curves)),
      marks: reached > 0 ? [{ x: reached, text: `range of head ${bias.head}` }] : [],
      height: 420,
    };
  }, [bias, log, settings["all"]]);
  const each = Array.from({ length: bias.heads }, (_, head) => head);
  const { later } = bias;
  const some = `${headsShown(bias).length} of ${bias.heads} heads are drawn; the table has all.`;
  return (
    <LineFigure
      lines={lines}
      note={[bias.heads > MOST_CURVES ? some : "", lines.y ? DEEP_BIASES : ""].join(" ")}
      file={`bias-curves-${bias.scheme}`}
      table={{
        rows: Array.from({ length: count }, (_, n) => n),
        columns: [
          { title: "distance", numeric: true, value: (n) => bias.distances.values[n]! },
          ...each.map((head) => numberColumn(`head ${head}`, (n: number) => at(bias.past, head, n))),
          ...(later
            ? each.map((head) => numberColumn(`head ${head}, later keys`, (n: number) => at(later, head, n)))
            : []),
        ],
      }}
      code={`${bias.python}\nww.analysis.by_distance(ww.Where(score=scheme), ${bias.examined}).curves`}
      how={
        <p>
          The bias that the query at position {whole(bias.examined - 1)} gives to each key before it, at {count} of
          these distances. FIRE alone also depends on the position of the query.
          {Boolean(settings["weights"]) && " As weights: exp(bias − the head’s greatest)."}
        </p>
      }
    >
      <Flag label="logarithmic distance" value={log} change={(log) => change({ log })} />{" "}
      <Flag label="down to the least bias" value={settings["all"] === true} change={(all) => change({ all })} />
    </LineFigure>
  );
}

export function Ranges({ bias, settings, change }: BiasProps) {
  const share = String(settings["share"]);
  const percent = `${100 * Number(share)} %`;
  const heads = Array.from({ length: bias.heads }, (_, head) => head);
  const title = `Effective range of each head, to ${percent} of its largest weight`;
  const { ranges, ranges_later: later, examined } = bias;
  const curves = `curves = np.stack([*ww.analysis.by_distance(ww.Where(score=scheme), ${examined}).curves.values()])`;
  const text = (distance: number) => (distance < 0 ? `beyond ${whole(examined)}` : whole(distance));
  const bars = heads.map((head) => {
    const range = ranges.distance.values[head]!;
    return {
      name: `head ${head}`,
      share: range < 0 ? 1 : Math.log(range + 1) / Math.log(examined + 1),
      text: text(range),
      color: head === bias.head ? "c1" : "c2",
      choose: () => change({ head }),
      chosen: head === bias.head,
    };
  });
  const column = (name: string, tensor: Tensor) => ({
    title: name,
    numeric: true,
    value: (head: number) => (tensor.values[head]! < 0 ? null : tensor.values[head]!),
    cell: (head: number) => text(tensor.values[head]!),
  });
  return (
    <Figure
      title={title}
      note="By the bias alone: from there on every weight is below that share. The bars are logarithmic."
      file={`bias-ranges-${bias.scheme}`}
      svg={() => barsSvg(title, bars)}
      rows={heads}
      columns={[
        { title: "head", numeric: true, value: (head) => head },
        column("range", ranges.distance),
        column("half", ranges.half),
        { title: "largest at", numeric: true, value: (head) => ranges.peak.values[head]! },
        numberColumn("mean distance", (head: number) => ranges.mean.values[head]),
        ...(later ? [column("range to later keys", later.distance), column("half of later keys", later.half)] : []),
      ]}
      code={`${bias.python}\n${curves}\nww.analysis.effective_range(curves, share=${share})`}
      how={
        <p>
          weight(h, d) = exp(bias(h, d)); the range is the least d from which on every weight is below {percent} of the
          head’s greatest, among {whole(examined)} distances. The dot products of queries and keys are added to it: a
          strong match is seen farther.
        </p>
      }
    >
      <Choice label="ends at" value={share} options={SHARES} change={(share) => change({ share })} />
      <Bars bars={bars} kind="ranges" />
    </Figure>
  );
}
