/** Positions: the vector or bias that a scheme, or the loaded table, has for each, and how they compare. */

import { useQuery } from "../hooks";
import { writeLink } from "../link";
import { whole } from "../numbers";
import { Choice, SizeChoice } from "../parts/choice";
import { SchemeChoice, SchemeFacts } from "../parts/scheme";
import { Answered } from "../parts/states";
import { register, type ViewProps } from "../register";
import type { Settings } from "../source";
import type { About, PositionFindings } from "../types";
import {
  ByDistance,
  Columns,
  Fingerprint,
  Norms,
  PathOf,
  Similarity,
  vectorsOf,
  Wavelengths,
} from "./positions/figures";

const DOORS = { input: "added to the vectors", query_key: "queries and keys", score: "scores" };
const ROWS = [16, 32, 64, 128, 256, 512, 1024, 2048];

register({
  id: "positions",
  title: "Positions",
  question: "What is the vector or bias of each position, which positions are similar, and what path do they take?",
  defaults,
  byRun: true,
  Page: Positions,
});

function defaults(about: About): Settings {
  return { ...about.begin["positions"], axes: "1,2", column: 4, log: false };
}

function Positions({ about, settings, change }: ViewProps) {
  const { scheme, door, rows, dim, heads, seed } = settings as Record<string, string | number>;
  const shown = useQuery("positions.shown", { scheme, door, rows, dim, heads, seed } as Settings);
  const doors = shown.answer?.doors ?? [];
  const link = (to: string) => writeLink(to, {}, {});
  return (
    <>
      <div class="controls">
        <SchemeChoice about={about} settings={settings} change={(some) => change({ ...some, door: "" })} />
        <SizeChoice label="positions" value={Number(rows)} sizes={ROWS} change={(rows) => change({ rows })} />
        {scheme !== "model" && !about.runs.includes(String(scheme)) && (
          <>
            <SizeChoice
              label="features"
              value={Number(dim)}
              sizes={[16, 32, 64, 128, 256, 512]}
              change={(dim) => change({ dim })}
              usual={about.tables.input ? "as open" : "16"}
            />
            <SizeChoice
              label="heads"
              value={Number(heads)}
              sizes={[1, 2, 4, 8, 16]}
              change={(heads) => change({ heads })}
              usual="as open"
            />
          </>
        )}
        {doors.length > 1 && (
          <Choice
            label="door"
            value={shown.answer?.door ?? ""}
            options={doors.map((each) => [each.door, DOORS[each.door]] as const)}
            change={(door) => change({ door })}
          />
        )}
      </div>
      <Answered query={shown} what="building the positions">
        {(answer) => (
          <>
            <SchemeFacts title={answer.title} doors={answer.doors} notes={answer.notes} />
            {answer.rows < Number(rows) && (
              <p class="note">
                This table ends after {whole(answer.rows)} {answer.rows === 1 ? "position" : "positions"}.
              </p>
            )}
            {answer.door === null && (
              <p class="lead">There is no positional encoding: every position is treated alike.</p>
            )}
            {answer.door !== null && !answer.fingerprint && (
              <p class="lead">
                This scheme depends on queries and keys. The <a href={link("pipeline")}>pipeline</a> shows it for a
                text.
              </p>
            )}
            <div class="halves">
              {answer.fingerprint && <Fingerprint shown={answer} />}
              {answer.fingerprint && answer.door !== "score" && (
                <Columns shown={answer} first={Number(settings["column"])} change={change} />
              )}
            </div>
            <Compared shown={answer} settings={settings} change={change} />
          </>
        )}
      </Answered>
    </>
  );
}

interface ComparedProps {
  shown: PositionFindings;
  settings: Settings;
  change: ViewProps["change"];
}

function Compared({ shown, settings, change }: ComparedProps) {
  const vectors = vectorsOf(shown);
  return (
    <>
      <div class="two even">
        {vectors && <Similarity shown={shown} vectors={vectors} />}
        {vectors && <PathOf shown={shown} vectors={vectors} axes={String(settings["axes"])} change={change} />}
        {shown.by_distance && <ByDistance shown={shown} log={settings["log"] === true} change={change} />}
        {vectors && shown.door === "input" && <Norms shown={shown} vectors={vectors} />}
        {shown.wavelengths && <Wavelengths shown={shown} wavelengths={shown.wavelengths} />}
      </div>
      {shown.vectors && "missing" in shown.vectors && <p class="lead">{shown.vectors.missing}.</p>}
    </>
  );
}
