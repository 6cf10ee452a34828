/** Biases: what positions add to attention scores, as a matrix and as curves, and each head's range. */

import { SERIES } from "../colors";
import { useQuery, useView } from "../hooks";
import { upTo, whole } from "../numbers";
import { Bars, barsSvg } from "../parts/bars";
import { Choice, Flag, type Option, Parameters, Slider } from "../parts/controls";
import { Figure, HeatFigure, LineFigure } from "../parts/figure";
import { type Curve, DEEP_BIASES, readableBiases, strokeOf } from "../parts/plot";
import { Answered } from "../parts/states";
import type { Column } from "../parts/table";
import type { BiasFindings } from "../types";
import type { Tensor } from "../wire";

export function Biases() {
  const { log: _log, all: _all, ...query } = useView().settings;
  return (
    <Answered query={useQuery("biases.shown", query)} what="reading biases">
      {(bias) => <BiasOf bias={bias} />}
    </Answered>
  );
}

function BiasOf({ bias }: { bias: BiasFindings }) {
  const { settings, change } = useView<BiasSettings>();
  const row = bias.choices.find(({ name }) => name === bias.scheme);
  const own = bias.scheme.startsWith("own-");
  return (
    <>
      {bias.missing !== null && (
        <p class="note">The open model has no bias: {bias.missing}. Shown are schemes of the catalogue.</p>
      )}
      {Object.entries(bias.unavailable).map(([title, missing]) => (
        <p key={title} class="note">
          Not shown is {title}: {missing}.
        </p>
      ))}
      <div class="controls">
        <Choice
          label="bias"
          name="scheme"
          value={bias.scheme}
          options={bias.choices.map(({ name, title }) => [name, title] as const)}
          set={(scheme) => ({ scheme, options: "", head: 0 })}
        />
        <Flag label="as weights, exp(bias)" name="weights" />
        {bias.random && (
          <button type="button" onClick={() => change({ seed: settings.seed + 1 })}>
            Sample again
          </button>
        )}
      </div>
      <p class="answer">{finding(bias, settings.share)}</p>
      <div class="split">
        <Ranges bias={bias} />
        <div class="side">
          <p class="note">
            {row?.formula || bias.repr}
            {row?.url && (
              <>
                {" "}
                (<a href={row.url}>source</a>)
              </>
            )}
            {bias.tensor && (
              <>
                {" "}
                with the learned table <code>{bias.tensor}</code>
              </>
            )}
            {bias.random && "; its parameters are random"}
          </p>
          <Slider
            label="head"
            help="of biases, counted from 0"
            name="head"
            value={bias.head}
            high={Math.max(bias.heads - 1, 1)}
          />
          {!own && (
            <Slider
              label="heads"
              help="of the schemes of the catalogue"
              name="heads"
              value={bias.heads}
              low={1}
              high={64}
            />
          )}
          <Slider label="tokens of the matrix" name="tokens" low={8} high={256} base={2} steps={2} />
          <Parameters of={bias.parameters} name="options" />
        </div>
      </div>
      <div class="two">
        <Matrix bias={bias} />
        <CurvesOf bias={bias} />
      </div>
    </>
  );
}

/** Return how far the heads attend, from the nearest to the farthest, in one sentence. */
function finding({ ranges, examined }: BiasFindings, share: string): string {
  const values = Array.from(ranges.distance.values, (range) => (range < 0 ? Infinity : range));
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const far = (range: number) => (range === Infinity ? `more than ${whole(examined)}` : whole(range));
  if (least === Infinity) return `By the bias alone, each head attends to more than ${whole(examined)} tokens back.`;
  const heads =
    least === most
      ? `each head has a range of ${far(least)} tokens`
      : `head ${values.indexOf(least)} has a range of ${far(least)} tokens and head ${values.indexOf(most)} one of ${far(most)}`;
  const percent = `${100 * Number(share)} %`;
  return `By the bias alone, ${heads}: beyond its range, every weight of a head is below ${percent} of its largest.`;
}

const MOST_CURVES = 8;

const SHARES = ["0.5", "0.1", "0.01", "0.001"].map((share): Option => [share, `${100 * Number(share)} %`]);

interface BiasSettings {
  weights: boolean;
  share: string;
  seed: number;
  log: boolean;
  all: boolean;
}

interface Props {
  bias: BiasFindings;
}

export function Matrix({ bias }: Props) {
  const { weights } = useView<BiasSettings>().settings;
  const queries = `ww.positions(${bias.matrix.shape[0]})${bias.causal ? ", causal=True" : ""}`;
  return (
    <HeatFigure
      title={`${weights ? "Weight" : "Bias"} of head ${bias.head}, query by key`}
      cells={bias.matrix}
      xLabel="key"
      yLabel="query"
      square
      barLabel={weights ? "weight" : "bias"}
      map={weights ? "amount" : "signed"}
      cell={7}
      note={bias.causal ? "Empty are later keys, which are masked." : "A causal mask hides all above the diagonal."}
      code={`${bias.python}\nscheme(${queries})[0, ${bias.head}]`}
      how={
        "What the scheme adds to the score of each query and key, by its own formula." +
        (weights ? " As weights: exp(bias − the greatest of the matrix)." : "")
      }
    />
  );
}

/** Return the heads to draw: all, or as many as can be distinguished, with the chosen one. */
function headsShown({ heads, head }: BiasFindings): number[] {
  if (heads <= MOST_CURVES) return upTo(heads);
  const even = upTo(MOST_CURVES - 1).map((k) => Math.round((k * (heads - 1)) / (MOST_CURVES - 2)));
  return [...new Set([...even, head])].sort((a, b) => a - b);
}

function CurvesOf({ bias }: Props) {
  const { log, weights, all } = useView<BiasSettings>().settings;
  const { past, later, heads, head } = bias;
  const count = bias.distances.values.length;
  const first = log ? 1 : 0; // a logarithmic axis has no distance 0
  const part = ({ values }: Tensor, head: number) => values.subarray(head * count + first, (head + 1) * count);
  const shown = headsShown(bias);
  const curves = shown.map((head, k): Curve => ({
    name: `head ${head}`,
    values: part(past, head),
    color: k,
    ...strokeOf(k),
  }));
  if (later) curves.push({ name: `head ${head}, later keys`, values: part(later, head), color: 0, dash: "1 3" });
  const reached = bias.ranges.distance.values[head]!;
  const ends = all || weights ? {} : readableBiases(curves);
  const column = (name: string, { values }: Tensor, head: number): Column<number> => ({
    title: name,
    numeric: true,
    value: (n) => values[head * count + n],
  });
  return (
    <LineFigure
      title={`${weights ? "Weight" : "Bias"} by distance`}
      x={bias.distances.values.subarray(first)}
      curves={curves}
      xLabel="distance"
      yLabel={weights ? "weight" : "bias"}
      logX={log}
      {...ends}
      marks={reached > 0 ? [{ x: reached, text: `range of head ${head}` }] : []}
      height={420}
      note={[
        heads > MOST_CURVES && `${shown.length} of ${heads} heads are drawn; the table has all. `,
        ends.y && DEEP_BIASES,
      ]}
      rows={upTo(count)}
      columns={[
        { title: "distance", numeric: true, value: (n) => bias.distances.values[n] },
        ...upTo(heads).map((head) => column(`head ${head}`, past, head)),
        ...(later ? upTo(heads).map((head) => column(`head ${head}, later keys`, later, head)) : []),
      ]}
      code={`${bias.python}\nww.analysis.by_distance(ww.Where(score=scheme), ${bias.examined}).curves`}
      how={
        `The bias that the query at position ${whole(bias.examined - 1)} gives to each key before it, at ${count} of ` +
        "these distances. FIRE alone also depends on the position of the query." +
        (weights ? " As weights: exp(bias − the head’s greatest)." : "")
      }
    >
      <Flag label="logarithmic distance" name="log" /> <Flag label="down to the least bias" name="all" />
    </LineFigure>
  );
}

function Ranges({ bias }: Props) {
  const { settings, change } = useView<BiasSettings>();
  const percent = `${100 * Number(settings.share)} %`;
  const title = `Effective range of each head, to ${percent} of its largest weight`;
  const { ranges, ranges_later: later, examined } = bias;
  const curves = `curves = np.stack([*ww.analysis.by_distance(ww.Where(score=scheme), ${examined}).curves.values()])`;
  const text = (distance: number) => (distance < 0 ? `beyond ${whole(examined)}` : whole(distance));
  const shown = headsShown(bias);
  const bars = upTo(bias.heads).map((head) => {
    const range = ranges.distance.values[head]!;
    return {
      name: `head ${head}`,
      share: range < 0 ? 1 : Math.log(range + 1) / Math.log(examined + 1),
      text: text(range),
      color: shown.includes(head) ? `c${shown.indexOf(head) % SERIES}` : "muted", // that of its curve
      choose: () => change({ head }),
      chosen: head === bias.head,
    };
  });
  const column = (name: string, { values }: Tensor): Column<number> => ({
    title: name,
    numeric: true,
    value: (head) => (values[head]! < 0 ? null : values[head]),
    cell: (head) => text(values[head]!),
  });
  return (
    <Figure
      title={title}
      note="From there on every weight is below that share, by the bias alone. The bars are logarithmic."
      svg={() => barsSvg(title, bars)}
      rows={upTo(bias.heads)}
      columns={[
        { title: "head", numeric: true, value: (head) => head },
        column("range", ranges.distance),
        column("half", ranges.half),
        { title: "largest at", numeric: true, value: (head) => ranges.peak.values[head] },
        { title: "mean distance", numeric: true, value: (head) => ranges.mean.values[head] },
        ...(later ? [column("range to later keys", later.distance), column("half of later keys", later.half)] : []),
      ]}
      code={`${bias.python}\n${curves}\nww.analysis.effective_range(curves, share=${settings.share})`}
      how={
        `weight(h, d) = exp(bias(h, d)); the range is the least d from which on every weight is below ${percent} of the ` +
        `head’s greatest, among ${whole(examined)} distances. The dot products of queries and keys are added to it: a ` +
        "strong match is seen farther."
      }
    >
      <Choice label="ends at" name="share" options={SHARES} />
      <Bars bars={bars} kind="ranges" />
    </Figure>
  );
}
