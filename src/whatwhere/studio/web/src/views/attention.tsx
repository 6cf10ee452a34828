/** View 12, attention by distance: how far the heads of a trained comparison model look. */

import { useMemo } from "preact/hooks";
import { formatNumber } from "../numbers";
import { Figure } from "../parts/figure";
import { How } from "../parts/how";
import { type Curve, Lines, type LinesProps, linesSvg } from "../parts/lines";
import { Answered } from "../parts/states";
import { register, type ViewProps } from "../register";
import { look } from "./compare/shared";
import type { Attention, AttentionCurves } from "../types";
import { runCode, runDefaults, useRun } from "./replay/run";

register({
  id: "attention",
  order: 12,
  title: "Attention by distance",
  question: "How much does each head of a trained model look at the token so many points back?",
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
  of: AttentionCurves;
  layer: number;
  log: boolean;
}

function Layer({ found, of, layer, log }: LayerProps) {
  const { distances, layers, uniform } = of;
  const [, heads = 0, points = 0] = layers.shape;
  const weight = (head: number, point: number) => layers.values[(layer * heads + head) * points + point]!;
  const plain = (point: number) => (uniform ? uniform.values[layer * points + point]! : NaN);
  const shown = (value: number) => (Number.isFinite(value) && (!log || value > 0) ? value : null);
  const title = `Layer ${layer}, ${of.length} ${found.unit}`;
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
        ...(uniform ? [each("uniform", plain, { color: 0, dash: [1, 4] })] : []),
      ],
      xLabel: "tokens back",
      yLabel: log ? "mean weight, logarithmic" : "mean weight",
      logY: log,
      height: 280,
    };
  }, [found, of, layer, log]);
  const one = uniform !== null && isOne(uniform.values.subarray(layer * points, (layer + 1) * points));
  return (
    <Figure
      title={title}
      note={
        one
          ? "One token alone asks here: the one whose answer is read. So each distance is one point."
          : "Averaged over all tokens that have one so far back."
      }
      file={`attention-${found.run}-${of.length}-${layer}`}
      svg={() => linesSvg(props)}
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
        <How code={`${runCode(found.run)}\nresults.trace(run)["attention@${of.length}"]  # layers, heads, distances`}>
          <p>
            weight(h, d) = mean of a(h, i, i − d) over the queries i ≥ d and 100 new sequences, measured when the run
            ended. Distance is counted in tokens, whatever their positions. Dotted: uniform attention would give, which
            is more for near ones, as early tokens see few.
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

/** Tell whether one query asks: looking at all alike, it gives each point the same weight. */
function isOne(weights: ArrayLike<number>): boolean {
  const known = Array.from(weights).filter(Number.isFinite);
  return known.every((value) => Math.abs(value - known[0]!) < 1e-6);
}
