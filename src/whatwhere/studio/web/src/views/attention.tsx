/** Attention by distance: the mean attention weights of a trained comparison model's heads. */

import { useMemo } from "preact/hooks";
import { useQuery } from "../hooks";
import { Flag } from "../parts/choice";
import { LineFigure, numberColumn } from "../parts/figures";
import type { Curve, LinesProps } from "../parts/lines";
import { look } from "../parts/plot";
import { Answered } from "../parts/states";
import { runCode } from "../python";
import { register, type ViewProps } from "../register";
import type { Attention, AttentionCurves } from "../types";

register({
  id: "attention",
  title: "Attention by distance",
  question: "How much attention does each head of a trained model pay to tokens at each distance?",
  defaults: () => ({ log: false }),
  byRun: true,
  Page: Page,
});

function Page({ settings, change }: ViewProps) {
  const query = useQuery("replay.attention", { run: String(settings["run"]) });
  const log = Boolean(settings["log"]);
  return (
    <Answered query={query} what="reading the run">
      {(answer) =>
        answer.missing !== null ? (
          <p class="note">There is no attention to show: {answer.missing}</p>
        ) : (
          <>
            <Flag label="weights by their logarithm" value={log} change={(log) => change({ log })} />
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
  const lines: LinesProps = useMemo(() => {
    const each = (name: string, value: (point: number) => number, seen: ReturnType<typeof look>): Curve => ({
      name,
      values: Array.from(distances.values, (_, point) => shown(value(point))),
      ...seen,
    });
    return {
      title: `Layer ${layer}, ${of.length} ${answer.unit}`,
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
    <LineFigure
      lines={lines}
      note={
        one
          ? "Only the query of the token whose answer is read is recorded, so each distance has one weight."
          : "Averaged over all queries with a key at that distance."
      }
      file={`attention-${answer.run}-${of.length}-${layer}`}
      table={{
        rows: Array.from(distances.values, (_, point) => point),
        columns: [
          { title: "tokens back", numeric: true, value: (point) => distances.values[point]! },
          ...Array.from({ length: heads }, (_, head) =>
            numberColumn(`head ${head}`, (point: number) => weight(head, point)),
          ),
          numberColumn("uniform", plain),
        ],
      }}
      code={`${runCode(answer.run)}\nresults.trace(run)["attention@${of.length}"]  # layers, heads, distances`}
      how={
        <p>
          weight(h, d) = mean of a(h, i, i − d) over the queries i ≥ d and 100 new sequences, measured when the run
          ended. Distance is counted in tokens, whatever their positions. Dotted: uniform attention. It is larger for
          near keys, since early queries have few keys.
        </p>
      }
    />
  );
}

/** Return whether only one query was recorded: uniform attention then has the same weight at each distance. */
function isOneQuery(weights: ArrayLike<number>): boolean {
  const known = Array.from(weights).filter(Number.isFinite);
  return known.every((value) => Math.abs(value - known[0]!) < 1e-6);
}
