/** Attention by distance: the mean attention weights of a trained comparison model's heads. */

import { upTo } from "../numbers";
import { useQuery, useView } from "../hooks";
import { Flag } from "../parts/controls";
import { LineFigure } from "../parts/figure";
import { type Curve, look } from "../parts/plot";
import { Answered } from "../parts/states";
import { runCode } from "../python";
import type { Attention, AttentionCurves } from "../types";

export function AttentionByDistance() {
  const query = useQuery("replay.attention", { run: useView().run });
  return (
    <Answered query={query} what="reading the run">
      {(answer) =>
        answer.missing !== null ? (
          <p class="note">There is no attention to show: {answer.missing}</p>
        ) : (
          <>
            <Flag label="weights by their logarithm" name="log" />
            {answer.lengths.map((each, n) => (
              <section key={each.length} aria-label={`${each.length} ${answer.unit}`}>
                <h2>
                  {n === 0 ? "At the longest trained length" : "Beyond it"}: {each.length} {answer.unit}
                </h2>
                <div class="pair">
                  {upTo(each.layers.shape[0]!).map((layer) => (
                    <Layer key={layer} answer={answer} of={each} layer={layer} />
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

function Layer({ answer, of, layer }: { answer: Attention; of: AttentionCurves; layer: number }) {
  const { log } = useView<{ log: boolean }>().settings;
  const { distances, layers, uniform } = of;
  const [, heads = 0, points = 0] = layers.shape;
  const part = (values: ArrayLike<number>, row: number) => Array.from(values).slice(row * points, (row + 1) * points);
  const plain = uniform && part(uniform.values, layer);
  const known = plain?.filter(Number.isFinite) ?? [];
  // Where one query alone is recorded, uniform attention has the same weight at each distance.
  const one = plain !== null && known.every((value) => Math.abs(value - known[0]!) < 1e-6);
  const curves: Curve[] = upTo(heads).map((head) => ({
    name: `head ${head}`,
    values: part(layers.values, layer * heads + head),
    ...look(head),
  }));
  if (plain) curves.push({ name: "uniform", values: plain, marker: 0, color: 0, dash: "1 4", baseline: true });
  return (
    <LineFigure
      title={`Layer ${layer}, ${of.length} ${answer.unit}`}
      x={distances.values}
      curves={curves}
      xLabel="tokens back"
      yLabel={log ? "mean weight, logarithmic" : "mean weight"}
      logY={log}
      note={
        one
          ? "Only the query of the token whose answer is read is recorded, so each distance has one weight."
          : "Averaged over all queries with a key at that distance."
      }
      code={`${runCode(answer.run)}\nresults.trace(run)["attention@${of.length}"]  # layers, heads, distances`}
      how={
        "weight(h, d) = mean of a(h, i, i − d) over the queries i ≥ d and 100 new sequences, measured when the run " +
        "ended. Distance is counted in tokens, whatever their positions. Dotted: uniform attention. It is larger for " +
        "near keys, since early queries have few keys."
      }
    />
  );
}
