/** View 12, attention by distance: how far the heads of a trained comparison model look. */

import { useMemo } from "preact/hooks";
import { formatNumber } from "../numbers";
import { Figure } from "../parts/figure";
import { How } from "../parts/how";
import { type Curve, Lines, type LinesProps, linesSvg } from "../parts/lines";
import { Answered } from "../parts/states";
import { register, type ViewProps } from "../register";
import { look } from "./compare/results";
import { type Attention, runCode, runDefaults, useRun } from "./replay/run";

register({
  id: "attention",
  order: 12,
  title: "Attention by distance",
  question: "How much does each head of a trained model look at the token so many places back?",
  defaults: (about) => ({ ...runDefaults(about), log: false, ...about.begin["attention"] }),
  shown: () => true,
  Page: Page,
});

function Page(props: ViewProps) {
  const { asked, choice } = useRun<Attention>(props, "attention");
  const log = Boolean(props.settings["log"]);
  return (
    <>
      {choice}
      <Answered query={asked} what="reading the run">
        {(answer) =>
          answer.missing !== null ? (
            <p class="note">There is no attention to show: {answer.missing}</p>
          ) : (
            <>
              <label class="choice">
                <input type="checkbox" checked={log} onChange={(event) => props.change({ log: event.currentTarget.checked })} /> weights by their logarithm
              </label>
              {answer.lengths.map((each, n) => (
                <section key={each.length} aria-label={`${each.length} ${answer.unit}`}>
                  <h2>
                    {n === 0 ? "At the longest trained length" : "Beyond it"}: {each.length} {answer.unit}
                  </h2>
                  <div class="pair">
                    {Array.from({ length: each.layers.shape[0]! }, (_, layer) => (
                      <Layer key={layer} found={answer} of={each} layer={layer} log={log} />
                    ))}
                  </div>
                </section>
              ))}
            </>
          )
        }
      </Answered>
    </>
  );
}

interface LayerProps {
  found: Attention;
  of: Attention["lengths"][number];
  layer: number;
  log: boolean;
}

function Layer({ found, of, layer, log }: LayerProps) {
  const { distances, layers, even } = of;
  const [, heads = 0, places = 0] = layers.shape;
  const weight = (head: number, place: number) => layers.values[(layer * heads + head) * places + place]!;
  const plain = (place: number) => (even ? even.values[layer * places + place]! : NaN);
  const shown = (value: number) => (Number.isFinite(value) && (!log || value > 0) ? value : null);
  const title = `Layer ${layer}, ${of.length} ${found.unit}`;
  const props: LinesProps = useMemo(() => {
    const each = (name: string, value: (place: number) => number, seen: ReturnType<typeof look>): Curve => ({
      name,
      values: Array.from(distances.values, (_, place) => shown(value(place))),
      ...seen,
    });
    return {
      title,
      x: distances.values,
      curves: [
        ...Array.from({ length: heads }, (_, head) => each(`head ${head}`, (place) => weight(head, place), look(head))),
        ...(even ? [each("all alike", plain, { color: 0, dash: [1, 4] })] : []),
      ],
      xLabel: "tokens back",
      yLabel: log ? "mean weight, logarithmic" : "mean weight",
      logY: log,
      height: 280,
    };
  }, [found, of, layer, log]);
  const one = even !== null && isOne(even.values.subarray(layer * places, (layer + 1) * places));
  return (
    <Figure
      title={title}
      note={one ? "One token alone asks here: the one whose answer is read. So each distance is one place." : "Averaged over all tokens that have one so far back."}
      file={`attention-${found.run}-${of.length}-${layer}`}
      svg={() => linesSvg(props)}
      rows={Array.from({ length: places }, (_, place) => place)}
      columns={[
        { title: "tokens back", numeric: true, value: (place) => distances.values[place]! },
        ...Array.from({ length: heads }, (_, head) => ({
          title: `head ${head}`,
          numeric: true,
          value: (place: number) => finite(weight(head, place)),
          cell: (place: number) => formatNumber(finite(weight(head, place))),
        })),
        { title: "all alike", numeric: true, value: (place) => finite(plain(place)), cell: (place) => formatNumber(finite(plain(place))) },
      ]}
      how={
        <How code={`${runCode(found.run)}\nresults.trace(run)["attention@${of.length}"]  # layers, heads, distances`}>
          <p>
            weight(h, d) = mean of a(h, i, i − d) over the queries i ≥ d and 100 new sequences, measured when the run ended. Distance is counted in tokens,
            wherever they stand. Dotted: what attention to all tokens alike would give, which is more for near ones, as early tokens see few.
          </p>
        </How>
      }
    >
      <Lines {...props} />
    </Figure>
  );
}

function finite(value: number): number | null {
  return Number.isFinite(value) ? value : null;
}

/** Tell whether one query asks: looking at all alike, it gives each place the same weight. */
function isOne(even: ArrayLike<number>): boolean {
  const known = Array.from(even).filter(Number.isFinite);
  return known.every((value) => Math.abs(value - known[0]!) < 1e-6);
}
