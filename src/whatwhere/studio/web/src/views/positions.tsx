/** Positions: the vector or bias that a scheme, or the loaded table, has for each, and how they compare. */

import { useQuery, useView } from "../hooks";
import { writeLink } from "../link";
import { whole } from "../numbers";
import { Choice } from "../parts/controls";
import { SchemeChoice, SchemeFacts, useCatalogue } from "../parts/scheme";
import { Answered } from "../parts/states";
import { register } from "../register";
import type { PositionFindings } from "../types";
import * as figures from "./positions/figures";

const DOORS = { input: "added to the vectors", query_key: "queries and keys", score: "scores" };

register({
  id: "positions",
  title: "Positions",
  question: "What is the vector or bias of each position, which positions are similar, and what path do they take?",
  defaults: (about) => ({ ...about.begin["positions"], axes: "1,2", column: 4, log: false }),
  byRun: true,
  Page: Positions,
});

function Positions() {
  const { about, settings } = useView<
    Record<"scheme" | "door", string> & Record<"rows" | "dim" | "heads" | "seed", number>
  >();
  const { scheme, door, rows, dim, heads, seed } = settings;
  const shown = useQuery("positions.shown", { scheme, door, rows, dim, heads, seed });
  const doors = shown.answer?.doors ?? [];
  return (
    <>
      <div class="controls">
        <SchemeChoice also={{ door: "" }} />
        <Choice label="positions" name="rows" options={[16, 32, 64, 128, 256, 512, 1024, 2048]} />
        {useCatalogue() && (
          <>
            <Choice
              label="features"
              name="dim"
              options={[[0, about.tables.input ? "as open" : "16"], 16, 32, 64, 128, 256, 512]}
            />
            <Choice label="heads" name="heads" options={[[0, "as open"], 1, 2, 4, 8, 16]} />
          </>
        )}
        {doors.length > 1 && (
          <Choice
            label="door"
            name="door"
            value={shown.answer?.door ?? ""}
            options={doors.map(({ door }) => [door, DOORS[door]] as const)}
          />
        )}
      </div>
      <Answered query={shown} what="building the positions">
        {(answer) => (
          <>
            <SchemeFacts of={answer} />
            {answer.rows < rows && (
              <p class="note">
                This table ends after {whole(answer.rows)} {answer.rows === 1 ? "position" : "positions"}.
              </p>
            )}
            {answer.door === null && (
              <p class="lead">There is no positional encoding: every position is treated alike.</p>
            )}
            {answer.door !== null && !answer.fingerprint && (
              <p class="lead">
                This scheme depends on queries and keys. The <a href={writeLink("pipeline", {}, {})}>pipeline</a> shows
                it for a text.
              </p>
            )}
            <div class="halves">
              {answer.fingerprint && <figures.Fingerprint shown={answer} />}
              {answer.fingerprint && answer.door !== "score" && <figures.Columns shown={answer} />}
            </div>
            <Compared shown={answer} />
          </>
        )}
      </Answered>
    </>
  );
}

function Compared({ shown }: { shown: PositionFindings }) {
  const vectors = figures.vectorsOf(shown);
  return (
    <>
      <div class="two even">
        {vectors && <figures.Similarity shown={shown} vectors={vectors} />}
        {vectors && <figures.PathOf shown={shown} vectors={vectors} />}
        {shown.by_distance && <figures.ByDistance shown={shown} />}
        {vectors && shown.door === "input" && <figures.Norms shown={shown} vectors={vectors} />}
        {shown.wavelengths && <figures.Wavelengths shown={shown} />}
      </div>
      {shown.vectors && "missing" in shown.vectors && <p class="lead">{shown.vectors.missing}.</p>}
    </>
  );
}
