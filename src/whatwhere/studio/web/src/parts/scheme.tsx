/** The choice of a positional encoding: the model's own, a run's, or one of the catalogue. */

import { useQuery } from "../hooks";
import type { Settings } from "../source";
import type { About, CatalogueEntry, DoorScheme } from "../types";

type Door = CatalogueEntry["door"];

const GROUPS: [Door, string][] = [
  ["input", "added to the vectors"],
  ["query_key", "maps queries and keys"],
  ["score", "added to the scores"],
  [null, "none of them"],
];
const MIXTURES = ["sinusoidal+rotary+alibi", "rotary+alibi", "learned+alibi"];

interface Props {
  about: About;
  settings: Settings;
  change(some: Settings): void;
}

export function SchemeChoice({ about, settings, change }: Props) {
  const { answer } = useQuery("schemes.list", {});
  const chosen = String(settings["scheme"]);
  const run = String(settings["run"] ?? "");
  const rows = answer?.schemes ?? [];
  const row = rows.find(({ name }) => name === chosen);
  const known = new Set([...rows.map(({ name }) => name), ...MIXTURES, run, "model"]);
  return (
    <>
      <label class="choice">
        where{" "}
        <select value={chosen} onChange={(event) => change({ scheme: event.currentTarget.value })}>
          {about.own && <option value="model">the model's own</option>}
          {about.runs.length > 0 && <option value={run}>the run's own</option>}
          {GROUPS.map(([door, label]) => {
            const own = rows.filter((each) => each.door === door);
            return own.length === 0 ? null : (
              <optgroup key={label} label={label}>
                {own.map(({ name }) => (
                  <option key={name}>{name}</option>
                ))}
              </optgroup>
            );
          })}
          <optgroup label="mixtures">
            {MIXTURES.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </optgroup>
          {!known.has(chosen) && <option>{chosen}</option>}
        </select>
      </label>
      {row && <code class="formula">{row.formula}</code>}
    </>
  );
}

/** The scheme at each door, and what differs from the model. */
export function SchemeFacts({
  title,
  doors,
  notes,
}: {
  title: string;
  doors: Pick<DoorScheme, "repr">[];
  notes: string[];
}) {
  return (
    <p class="note">
      <b>{title}</b>
      {doors.length === 0 && ": no positional encoding"}
      {doors.map(({ repr }) => (
        <span key={repr}>
          {" "}
          · <code>{repr}</code>
        </span>
      ))}
      {notes.map((note) => (
        <span key={note}> · {note}</span>
      ))}
    </p>
  );
}
