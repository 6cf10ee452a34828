/** The choice of a positional encoding: the model's own, a run's, or one of the catalogue; and its sizes. */

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
  /** Doors of which schemes are offered; all without. */
  doors?: Door[];
}

export function SchemeChoice({ about, settings, change, doors }: Props) {
  const { answer } = useQuery("schemes.list", {});
  const chosen = String(settings["scheme"]);
  const run = String(settings["run"] ?? "");
  const rows = (answer?.schemes ?? []).filter(({ door }) => !doors || doors.includes(door));
  const row = rows.find(({ name }) => name === chosen);
  const mixtures = doors ? [] : MIXTURES;
  const known = new Set([...rows.map(({ name }) => name), ...mixtures, run, "model"]);
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
          {mixtures.length > 0 && (
            <optgroup label="mixtures">
              {mixtures.map((name) => (
                <option key={name}>{name}</option>
              ))}
            </optgroup>
          )}
          {!known.has(chosen) && <option>{chosen}</option>}
        </select>
      </label>
      {row && <code class="formula">{row.formula}</code>}
    </>
  );
}

interface SizeProps {
  label: string;
  name: string;
  sizes: number[];
  settings: Settings;
  change(some: Settings): void;
  /** The label of 0; without it, 0 is not offered. */
  usual?: string;
}

/** One of some sizes, and the one that is chosen if it is none of them. */
export function SizeChoice({ label, name, sizes, settings, change, usual }: SizeProps) {
  const chosen = Number(settings[name]);
  const all = [...new Set([...sizes, ...(chosen ? [chosen] : [])])].sort((a, b) => a - b);
  return (
    <label class="choice">
      {label}{" "}
      <select value={String(chosen)} onChange={(event) => change({ [name]: Number(event.currentTarget.value) })}>
        {usual !== undefined && <option value="0">{usual}</option>}
        {all.map((size) => (
          <option key={size} value={String(size)}>
            {size}
          </option>
        ))}
      </select>
    </label>
  );
}

/** A yes or no. */
export function Flag({
  label,
  name,
  settings,
  change,
}: {
  label: string;
  name: string;
  settings: Settings;
  change(some: Settings): void;
}) {
  return (
    <label class="choice">
      <input
        type="checkbox"
        checked={settings[name] === true}
        onChange={(event) => change({ [name]: event.currentTarget.checked })}
      />{" "}
      {label}
    </label>
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
