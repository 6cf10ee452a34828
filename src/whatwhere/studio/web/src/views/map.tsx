/** The token map: all tokens on a plane, how many neighbors it keeps, and the true neighbors of one token. */

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { useQuery, useSource, useView, useWithRun } from "../hooks";
import { type Followed, useJob } from "../jobs";
import { fixed, whole, upTo } from "../numbers";
import { announce, Answered, JobProgress, Wrong } from "../parts/states";
import { Choice, Folded, type Option } from "../parts/controls";
import { TokenField, TokenLabel } from "../parts/field";
import { Figure } from "../parts/figure";
import { BEHIND, pointsInside } from "../parts/raster";
import { Scatter, type ScatterProps, scatterSvg } from "../parts/scatter";
import { Table } from "../parts/table";
import type { Settings } from "../source";
import type { About, MapNeighbors, MapPoints } from "../types";
import { byImportance, coloring, type Coloring } from "./map/coloring";
import { matcher, Names } from "./map/labels";
import {
  cardOf,
  type ComputedMap,
  isComputed,
  type Method,
  METHODS,
  NamedFacts,
  NamedField,
  Plane,
  pointColumns,
  readBox,
  trust,
  writeBox,
} from "./map/points";
import { tableName } from "./tokens";

export function defaults({ begin, examples }: About): Settings {
  const { method = "pca", table = "input" } = begin["map"] ?? {};
  return { method, table, tokens: "", color: "type", find: "", only: "", token: examples[0] ?? "", box: "" };
}

type Choices = Record<"table" | "tokens" | "color" | "find" | "only" | "token" | "box", string> & { method: Method };

const UNFILTERED = { box: "", only: "", find: "" };

export function TokenMap() {
  const { method, table, tokens } = useView<Choices>().settings;
  const byJob = method !== "pca" && tokens === "";
  const wanted = useQuery("maps.points", { method, table, ...(tokens && { tokens }) });
  const first = useQuery("maps.points", byJob ? { method: "pca", table } : null);
  const labels = useQuery("maps.labels", { table });
  const job = useJob("maps.draw", byJob ? { method, table } : null);
  const here = isComputed(wanted.answer) && wanted.answer.method === method && !wanted.answer.named === !tokens;
  const layout = tokens ? wanted.answer : (job.answer ?? (here ? wanted.answer : null));
  const waiting = byJob && wanted.problem === null ? first : wanted;
  const shown = layout ? { ...wanted, answer: layout } : waiting;
  const names = useMemo(() => labels.answer && new Names(labels.answer), [labels.answer]);
  return (
    <>
      <Controls />
      {byJob && !layout && wanted.answer && <Drawing map={wanted.answer} method={method} job={job} />}
      <Answered query={shown} what="laying the tokens out">
        {(map) =>
          names && isComputed(map) ? (
            <MapFigure map={map} names={names} />
          ) : (
            labels.problem !== null && <Wrong message={labels.problem} />
          )
        }
      </Answered>
    </>
  );
}

const TABLES: Option[] = [
  ["input", "token table"],
  ["output", "output projection"],
];

function Controls() {
  const { about, settings } = useView<Choices>();
  const { table, tokens } = settings;
  const source = useSource();
  const withRun = useWithRun();
  const offered = (wanted: Settings) =>
    source.holds("maps.points", withRun("maps.points", tokens ? { ...wanted, tokens } : wanted)); // all, or what an exported page has
  const methods = Object.entries(METHODS).filter(
    ([method]) => offered({ method, table }) && !(tokens && method === "umap"),
  );
  return (
    <search class="controls">
      <TokenField main label="Token" name="token" hint="text or #id, Ctrl+K" />
      <Choice label="laid out by" name="method" options={methods} set={(method) => ({ ...UNFILTERED, method })} />
      {about.tables.output && offered({ method: "pca", table: "output" }) && (
        <Choice label="rows of the" name="table" options={TABLES} set={(table) => ({ ...UNFILTERED, table })} />
      )}
      {(!about.exported || about.begin["map"]?.["example"]) && (
        <Folded title="only some tokens" rare open={tokens !== ""}>
          <NamedField />
        </Folded>
      )}
    </search>
  );
}

interface FiltersProps {
  colors: Coloring;
  grouped: boolean;
  /** How many points pass the filters; null where there are none. */
  passed: number | null;
  children: ComponentChildren;
}

/** What the points are colored by, and which of them are shown before the others. */
function Filters({ colors, grouped, passed, children }: FiltersProps) {
  const { settings, change } = useView<Choices>();
  const only = colors.choices.map(([name, count]): Option => [name, `${name} (${whole(count)})`]);
  return (
    <search class="controls" aria-label="Filter">
      {!grouped && (
        <Choice
          label="colored by"
          name="color"
          options={["type", "script", "norm", "frequency"]}
          set={(color) => ({ color, only: "" })}
        />
      )}
      <Choice label="only" name="only" options={[["", "all"], ...only]} />
      <label class="choice">
        find{" "}
        <input
          type="search"
          size={14}
          value={settings.find}
          spellcheck={false}
          title="a part of the text; ^ is its beginning, $ its end, * anything"
          onInput={(event) => change({ find: event.currentTarget.value }, true)}
        />
      </label>
      {children}
      <span class="choice" role="status">
        {passed !== null && counted(passed)}
      </span>
      {(settings.box || settings.only || settings.find) && (
        <button type="button" onClick={() => change(UNFILTERED)}>
          Reset
        </button>
      )}
    </search>
  );
}

function counted(tokens: number): string {
  return tokens === 1 ? "1 token" : `${whole(tokens)} tokens`;
}

/** Shown above the map while the requested one is not computed yet; it begins by itself. */
function Drawing({ map, method, job }: { map: MapPoints; method: Method; job: Followed<MapPoints> }) {
  const name = METHODS[method];
  const extra = map.missing[method];
  useEffect(() => {
    if (!extra && job.state === "idle") job.start();
  });
  if (extra) {
    return (
      <div class="wrong">
        <p>
          {name} needs a package that is not installed: <code>pip install "whatwhere[{extra}]"</code>, then restart the
          studio. Below is PCA.
        </p>
      </div>
    );
  }
  const sampled = map.shown < map.rows ? ` of ${whole(map.rows)} tokens, sampled at random` : " tokens";
  const many = whole(map.shown) + sampled;
  if (job.state === "running") return <JobProgress job={job} what={`drawing ${many} by ${name}; until then, PCA`} />;
  return (
    <>
      {job.problem !== null && <Wrong message={job.problem} />}
      <div class="progress">
        <button type="button" onClick={job.start}>
          Draw by {name}
        </button>
        <span>{many}. Below is PCA.</span>
      </div>
    </>
  );
}

function MapFigure({ map, names }: { map: ComputedMap; names: Names }) {
  const { settings, change } = useView<Choices>();
  const { color, only, find, token } = settings;
  const [selecting, setSelecting] = useState(false);
  const { named } = map;
  const { k, queries } = map.kept;
  const chosenRows = named ? `, rows=[${Array.from(map.ids.values).join(", ")}]` : "";
  const frequencies = useQuery("maps.frequencies", color === "frequency" ? { table: map.table } : null).answer;
  const near = useQuery("maps.near", token === "" ? null : { token, table: map.table });
  const plane = useMemo(() => new Plane(map), [map]);
  const colors = useMemo(
    () => coloring(color, plane.ids, names, only, frequencies, named),
    [color, plane, names, only, frequencies],
  );
  const order = useMemo(() => byImportance(plane.ids, names, frequencies), [plane, names, frequencies]);
  const rows = useMemo(() => upTo(plane.ids.length), [plane]);
  const passed = useMemo(() => {
    if (find.trim() === "" && only === "") return null;
    const matches = matcher(find);
    return rows.filter((n) => colors.keeps(n) && matches(names.plain(plane.ids[n]!)));
  }, [rows, names, colors, find]);
  const points = useMemo(() => {
    const group = passed ? new Uint8Array(colors.group.length).fill(BEHIND) : colors.group;
    for (const n of passed ?? []) group[n] = colors.group[n]!;
    return { x: plane.x, y: plane.y, group };
  }, [plane, colors, passed]);
  const box = useMemo(() => readBox(settings.box), [settings.box]);
  const columns = useMemo(() => pointColumns(plane, names), [plane, names]);
  const chosen = near.answer ? plane.point(near.answer.id) : null;
  const neighbors = chosen === null ? [] : Array.from(near.answer!.ids.values);
  const joined = neighbors.map((id) => plane.point(id)).filter((point) => point !== null);
  const title = `${whole(map.shown)} ${named ? "named " : ""}tokens by ${METHODS[map.method]}`;
  const scatter: ScatterProps = {
    title,
    points,
    name: (point) => names.shown(plane.ids[point]!),
    detail: (point) => names.line(plane.ids[point]!),
    ...colors,
    only,
    chooseGroup: (name) => change({ only: name }),
    printed: trust(map),
    chosen,
    choose: (point) => change({ token: point === null ? "" : `#${plane.ids[point]!}` }),
    select: (area) => change({ box: writeBox(area) }),
    selecting,
    framed: box,
    joined,
    order,
  };
  const selected = box ? pointsInside(points, box).filter((n) => points.group[n] !== BEHIND) : passed;
  return (
    <>
      {named && <NamedFacts named={named} />}
      <Folded title="colors and filters" rare open={color !== "type" || passed !== null || selecting}>
        <Filters
          colors={colors}
          grouped={named !== null && named.group_names.length > 1}
          passed={passed?.length ?? null}
        >
          <label class="choice">
            <input type="checkbox" checked={selecting} onChange={() => setSelecting(!selecting)} /> drag selects
          </label>
        </Filters>
      </Folded>
      <div class="split">
        <Figure
          title={title}
          note={<Trust map={map} colors={colors.note} />}
          svg={() => scatterSvg(scatter)}
          rows={rows}
          columns={columns}
          code={
            `made = ww.analysis.make_map(ww.read(PATH).array("${map.name}"${chosenRows}), "${map.method}", k=${k})\n` +
            "made.coordinates, made.kept"
          }
          how={[
            WAYS[map.method],
            `Kept: the mean over ${whole(queries)} tokens of |N(token in the ${tableName(map.table)}, by cosine) ∩ N(token ` +
              `on the map)| / ${k}, where N are the ${k} nearest, computed exactly. Points are drawn over each other at ` +
              "random, so that no group hides another.",
          ]}
        >
          <Scatter {...scatter} />
        </Figure>
        <div>
          {near.problem !== null && <Wrong message={near.problem} />}
          {near.answer ? (
            <NearOf near={near.answer} plane={plane} names={names} chosen={chosen} joined={joined} />
          ) : (
            <p class="note">Choose a point of the map, or a token: its true neighbors are listed here.</p>
          )}
        </div>
      </div>
      {selected && (
        <section aria-label="Selected tokens">
          <h2>
            {counted(selected.length)} {box ? "in the rectangle" : "pass the filters"}
          </h2>
          <button type="button" onClick={() => (change(UNFILTERED), announce("nothing is selected"))}>
            Clear
          </button>
          {selected.length > 0 && <Table caption="Selected tokens" columns={columns} rows={selected} saved />}
        </section>
      )}
    </>
  );
}

function Trust({ map, colors }: { map: ComputedMap; colors: string }) {
  const [kept, sampled] = trust(map);
  const { named, shown, rows, not_finite } = map;
  return (
    <>
      This map <b>{kept}</b> ({sampled}): near on it is often not near in the table. {colors}
      {!named && shown < rows - not_finite && ` ${whole(shown)} of ${whole(rows)} tokens are shown, sampled at random.`}
      {not_finite > 0 && ` ${whole(not_finite)} rows with numbers that are not finite are not on the map.`}
    </>
  );
}

interface NearProps {
  near: MapNeighbors;
  plane: Plane;
  names: Names;
  chosen: number | null;
  joined: number[];
}

function NearOf({ near, plane, names, chosen, joined }: NearProps) {
  const { change } = useView();
  const { length } = joined;
  return (
    <section class="near" aria-label="True neighbors">
      <h2>
        True neighbors of <TokenLabel word={names.word(near.id)} text={names.text(near.id)} href={cardOf(near.id)} />
      </h2>
      <p class="note">
        {chosen === null
          ? "This token is not among those that are drawn. "
          : `Of its ${length} neighbors that are drawn, ${plane.keeps(chosen, joined)} ` +
            `are among the ${length} nearest on this map; lines lead to them all. `}
        The nearest in the full space, by cosine:
      </p>
      <ol class="plain chips">
        {Array.from(near.ids.values, (id, n) => (
          <li key={id}>
            <button type="button" onClick={() => change({ token: `#${id}` })} title={names.line(id)}>
              <TokenLabel word={names.word(id)} text={names.text(id)} />
              <small>{fixed(near.cosines.values[n]!, 3)}</small>
            </button>
          </li>
        ))}
      </ol>
    </section>
  );
}

const WAYS: Record<Method, string> = {
  pca:
    "The two directions of largest variance: C = X − mean(X) = U S Vᵀ, and the coordinates are C V₂. " +
    "Where the table is large, V comes from the covariance of 16,384 rows.",
  tsne:
    "t-SNE, van der Maaten and Hinton 2008, by openTSNE: equal weights for the 15 nearest tokens by cosine, seed 0. " +
    "Neighbors stay neighbors; distances between groups mean little.",
  umap:
    "UMAP, McInnes, Healy and Melville 2018, by umap-learn: 15 neighbors, cosine, seed 0. " +
    "Neighbors stay neighbors; distances between groups mean little.",
};
