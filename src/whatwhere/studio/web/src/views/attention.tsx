/** Attention by distance: the mean attention weights of a trained comparison model's heads. */

import { useQuery, useView } from "../hooks";
import { Sections } from "../parts/sections";
import { Answered } from "../parts/states";
import { runCode } from "../python";

export function AttentionByDistance() {
  const { run } = useView();
  return (
    <Answered query={useQuery("replay.attention", { run })} what="reading the run">
      {(found) => (
        <Sections
          of={found}
          code={`${runCode(run)}\nresults.trace(run)  # by length, as in attention@6: layers, heads, distances`}
          how="Weights as the run recorded them when it ended."
        />
      )}
    </Answered>
  );
}
