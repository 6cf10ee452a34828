/** View 12, attention by distance: the mean attention weights of a trained comparison model's heads. */

import { useMemo } from "preact/hooks";
import { formatNumber } from "../numbers";
import { Figure } from "../parts/figure";
import { How } from "../parts/how";
import { type Curve, Lines, type LinesProps, linesSvg } from "../parts/lines";
import { look } from "../parts/plot";
import { Answered } from "../parts/states";
import { register, type ViewProps, withoutRuns } from "../register";
import type { Attention, AttentionCurves } from "../types";
import { runCode, runDefaults, useRun } from "./replay/run";

register({
  id: "attention",
  order: 12,
  title: "Attention by distance",
  question: "How much attention does each head of a trained model pay to tokens at each distance?",
  defaults: (about) => ({ ...runDefaults(about), log: false, ...about.begin["attention"] }),
  shown: () => true,
  empty: withoutRuns,
  byRun: true,
  Page: Page,
});

function Page(props: ViewProps) {
  const { query, choice } = useRun(props, "replay.attention", ({ attention }) => attention);
  const log = Boolean(props.settings["log"]);
  return (
    <>
      {choice}
      <Answered query={query} what="reading the run">
        {(answer) =>
          answer.missing !== null ? (
            <p class="note">There is no attention to show: {answer.missing}</p>
          ) : (
            <>
              <label class="choice">
                <input
                  type="checkbox"
                  checked={log}
                  onChange={(event) => props.change({ log: event.currentTarget.checked })}
                />{" "}
                weights by their logarithm
              </label>
              {answer.lengths.map((each, n) => (
                <section key={each.length} aria-label={`${each.length} ${answer.unit}`}>
                  <h2>
                    {n === 0 ? "At the longest trained length" : "Beyond it"}: {each.length} {answer.unit}
                  </h2>
                  <div class="pair">
                    {Array.from({ length: each.layers.shape[0]! }, (_, layer) => (
                      <Layer key={layer} answer={answer} of={each} layer={layer} log={log} />
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
  answer: Attention;
  of: AttentionCurves;
  layer: number;
  log: boolean;
}

function Layer({ answer, of, layer, log }: LayerProps) {
  const { distances, layers, uniform } = of;
  const [, heads = 0, points = 0] = layers.shape;
  const weight = (head: number, point: number) => layers.values[(layer * heads + head) * points + point]!;
  const plain = (point: number) => (uniform ? uniform.values[layer * points + point]! : NaN);
  const shown = (value: number) => (Number.isFinite(value) && (!log || value > 0) ? value : null);
  const title = `Layer ${layer}, ${of.length} ${answer.unit}`;
  const props: LinesProps = useMemo(() => {
    const each = (name: string, value: (point: number) => number, seen: ReturnType<typeof look>): Curve => ({
      name,
      values: Array.from(distances.values, (_, point) => shown(value(point))),
      ...seen,
    });
    return {
      title,
      x: distances.values,
      curves: [
        ...Array.from({ length: heads }, (_, head) => each(`head ${head}`, (point) => weight(head, point), look(head))),
        ...(uniform ? [{ ...each("uniform", plain, look(0)), color: 0, dash: [1, 4], baseline: true }] : []),
      ],
      xLabel: "tokens back",
      yLabel: log ? "mean weight, logarithmic" : "mean weight",
      logY: log,
      height: 280,
    };
  }, [answer, of, layer, log]);
  const one = uniform !== null && isOneQuery(uniform.values.subarray(layer * points, (layer + 1) * points));
  return (
    <Figure
      title={title}
      note={
        one
          ? "Only the query of the token whose answer is read is recorded, so each distance has one weight."
          : "Averaged over all queries with a key at that distance."
      }
      file={`attention-${answer.run}-${of.length}-${layer}`}
      svg={(width) => linesSvg(props, width)}
      rows={Array.from({ length: points }, (_, point) => point)}
      columns={[
        { title: "tokens back", numeric: true, value: (point) => distances.values[point]! },
        ...Array.from({ length: heads }, (_, head) => ({
          title: `head ${head}`,
          numeric: true,
          value: (point: number) => finite(weight(head, point)),
          cell: (point: number) => formatNumber(finite(weight(head, point))),
        })),
        {
          title: "uniform",
          numeric: true,
          value: (point) => finite(plain(point)),
          cell: (point) => formatNumber(finite(plain(point))),
        },
      ]}
      how={
        <How code={`${runCode(answer.run)}\nresults.trace(run)["attention@${of.length}"]  # layers, heads, distances`}>
          <p>
            weight(h, d) = mean of a(h, i, i − d) over the queries i ≥ d and 100 new sequences, measured when the run
            ended. Distance is counted in tokens, whatever their positions. Dotted: uniform attention. It is larger for
            near keys, since early queries have few keys.
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

/** Return whether only one query was recorded: uniform attention then has the same weight at each distance. */
function isOneQuery(weights: ArrayLike<number>): boolean {
  const known = Array.from(weights).filter(Number.isFinite);
  return known.every((value) => Math.abs(value - known[0]!) < 1e-6);
}
