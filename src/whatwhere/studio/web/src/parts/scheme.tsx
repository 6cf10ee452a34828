/** The choice of a positional encoding: the model's own, a run's, or one of the catalogue. */

import { useQuery, useView } from "../hooks";
import type { Settings } from "../source";
import type { DoorScheme, SchemeDescription } from "../types";
import { Choice, type Option } from "./controls";

const GROUPS: [SchemeDescription["door"], string][] = [
  ["input", "added to the vectors"],
  ["query_key", "maps queries and keys"],
  ["score", "added to the scores"],
  [null, "none of them"],
];
const MIXTURES = ["sinusoidal+rotary+alibi", "rotary+alibi", "learned+alibi"];

export function SchemeChoice({ also }: { also: Settings }) {
  const { about, run, settings } = useView<{ scheme: string }>();
  const { answer } = useQuery("schemes.list", {});
  const schemes = answer?.schemes ?? [];
  const options: Option[] = [
    ...(about.own ? [["model", "the model's own"] as const] : []),
    ...(run ? [[run, "the run's own"] as const] : []),
    ...GROUPS.flatMap(([door, group]) =>
      schemes.filter((each) => each.door === door).map(({ name }) => [name, name, group] as const),
    ),
    ...MIXTURES.map((name) => [name, name, "mixtures"] as const),
  ];
  const row = schemes.find(({ name }) => name === settings.scheme);
  return (
    <>
      <Choice label="where" name="scheme" options={options} set={(scheme) => ({ scheme, ...also })} />
      {row && <code class="formula">{row.formula}</code>}
    </>
  );
}

/** Return whether a scheme of the catalogue is shown, whose sizes can be chosen. */
export function useCatalogue(): boolean {
  const { about, settings } = useView<{ scheme: string }>();
  return settings.scheme !== "model" && !about.runs.includes(settings.scheme);
}

export function SchemeFacts({ of }: { of: { title: string; doors: DoorScheme[]; notes: string[] } }) {
  return (
    <p class="note">
      <b>{of.title}</b>
      {of.doors.length === 0 && ": no positional encoding"}
      {of.doors.map(({ repr }) => (
        <span key={repr}>
          {" "}
          · <code>{repr}</code>
        </span>
      ))}
      {of.notes.map((note) => (
        <span key={note}> · {note}</span>
      ))}
    </p>
  );
}
