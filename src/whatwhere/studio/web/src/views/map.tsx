/** The token map: all tokens on a plane, how many neighbors it keeps, and the true neighbors of one token. */

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { type Query, useQuery, useSource, useWithRun } from "../hooks";
import { visibleToken } from "../escape";
import { writeLink } from "../link";
import { fixed, whole } from "../numbers";
import { announce } from "../parts/announce";
import { Choice, Flag } from "../parts/choice";
import { TokenField } from "../parts/field";
import { Figure } from "../parts/figure";
import { JobProgress } from "../parts/progress";
import { BEHIND } from "../parts/raster";
import { Scatter, type ScatterProps, scatterSvg } from "../parts/scatter";
import { Answered, Wrong } from "../parts/states";
import { TokenLabel } from "../parts/token";
import { register, type ViewProps } from "../register";
import type { Settings } from "../source";
import type { About, MapNeighbors, MapPoints } from "../types";
import { type Followed, useJob } from "../jobs";
import { byImportance, coloring, type Coloring } from "./map/coloring";
import { matcher } from "./map/filter";
import { Names } from "./map/labels";
import { NamedFacts, NamedField } from "./map/named";
import { type ComputedMap, isComputed, type Method, METHODS, Plane, readBox, trust, writeBox } from "./map/points";
import { pointColumns, Selected } from "./map/selected";
import { tableName } from "./tokens/neighbors";

const COLORS = ["type", "script", "norm", "frequency"];

register({
  id: "map",
  title: "Token map",
  question: "How are all tokens arranged, and how much of that does a map in two dimensions keep?",
  defaults,
  byRun: true,
  Page: TokenMap,
});

function defaults(about: About): Settings {
  const { method = "pca", table = "input" } = about.begin["map"] ?? {};
  const token = about.examples[0] ?? "";
  return { method, table, tokens: "", color: "type", find: "", only: "", token, box: "" };
}

/** Nothing is filtered or selected. */
const UNFILTERED = { box: "", only: "", find: "" };

function TokenMap({ about, settings, change }: ViewProps) {
  const method = String(settings["method"]) as Method;
  const table = String(settings["table"]);
  const tokens = String(settings["tokens"]);
  const begin = about.begin["map"] ?? {};
  const byJob = method !== "pca" && tokens === "";
  const wanted = useQuery("maps.points", { method, table, ...(tokens && { tokens }) });
  const first = useQuery("maps.points", byJob ? { method: "pca", table } : null);
  const labels = useQuery("maps.labels", { table });
  const job = useJob("maps.draw", byJob ? { method, table } : null);
  const here = isComputed(wanted.answer) && wanted.answer.method === method && !wanted.answer.named === !tokens;
  const layout = tokens ? wanted.answer : (job.answer ?? (here ? wanted.answer : null));
  const shown: Query<MapPoints> = layout
    ? { ...wanted, answer: layout }
    : byJob && wanted.problem === null
      ? first
      : wanted;
  const names = useMemo(() => labels.answer && new Names(labels.answer), [labels.answer]);
  const name = (next: string) =>
    change({ ...UNFILTERED, token: "", tokens: next, method: next ? "pca" : (begin["method"] ?? "pca") });
  const example = String(begin["example"] ?? "");
  const live = !about.exported;
  return (
    <>
      {(live || example !== "") && <NamedField value={tokens} example={example} choose={name} />}
      <Controls about={about} settings={settings} change={change} />
      {byJob && !layout && wanted.answer && <Drawing map={wanted.answer} method={method} job={job} />}
      <Answered query={shown} what="laying the tokens out">
        {(map) =>
          names && isComputed(map) ? (
            <MapFigure about={about} settings={settings} change={change} map={map} names={names} />
          ) : (
            labels.problem !== null && <Wrong message={labels.problem} />
          )
        }
      </Answered>
    </>
  );
}

const TABLES = [["input", "token table"] as const, ["output", "output projection"] as const];

function Controls({ about, settings, change }: ViewProps) {
  const source = useSource();
  const withRun = useWithRun();
  const table = String(settings["table"]);
  const tokens = String(settings["tokens"]);
  const offered = (wanted: Settings) =>
    source.holds("maps.points", withRun("maps.points", tokens ? { ...wanted, tokens } : wanted)); // all, or what an exported page has
  const choose = (name: string) => (value: string) => change({ ...UNFILTERED, [name]: value });
  const methods = Object.entries(METHODS).filter(
    ([method]) => offered({ method, table }) && !(tokens && method === "umap"),
  );
  return (
    <search class="controls">
      <TokenField
        main
        label="Token"
        value={String(settings["token"])}
        choose={(token) => change({ token })}
        hint="text or #id, Ctrl+K"
      />
      <Choice label="laid out by" value={String(settings["method"])} options={methods} change={choose("method")} />
      {about.tables.output && offered({ method: "pca", table: "output" }) && (
        <Choice label="rows of the" value={table} options={TABLES} change={choose("table")} />
      )}
    </search>
  );
}

interface FiltersProps {
  settings: Settings;
  change: ViewProps["change"];
  colors: Coloring;
  grouped: boolean;
  /** How many points pass the filters; null where there are none. */
  passed: number | null;
  children: ComponentChildren;
}

/** What the points are colored by, and which of them are shown before the others. */
function Filters({ settings, change, colors, grouped, passed, children }: FiltersProps) {
  const [find, only] = [String(settings["find"]), String(settings["only"])];
  return (
    <search class="controls" aria-label="Filter">
      {!grouped && (
        <Choice
          label="colored by"
          value={String(settings["color"])}
          options={COLORS}
          change={(color) => change({ color, only: "" })}
        />
      )}
      <Choice
        label="only"
        value={only}
        options={[["", "all"], ...colors.choices.map(([name, count]) => [name, `${name} (${whole(count)})`] as const)]}
        change={(only) => change({ only })}
      />
      <label class="choice">
        find{" "}
        <input
          type="search"
          size={14}
          value={find}
          spellcheck={false}
          placeholder="^un*ing$"
          title="a part of the text; ^ is its beginning, $ its end, * anything"
          onInput={(event) => change({ find: event.currentTarget.value }, true)}
        />
      </label>
      {children}
      <span class="choice" role="status">
        {passed !== null && `${whole(passed)} ${passed === 1 ? "token" : "tokens"}`}
      </span>
      {Object.keys(UNFILTERED).some((name) => settings[name] !== "") && (
        <button type="button" onClick={() => change(UNFILTERED)}>
          Reset
        </button>
      )}
    </search>
  );
}

interface DrawingProps {
  map: MapPoints;
  method: Method;
  job: Followed<MapPoints>;
}

/** Shown above the map while the requested one is not computed yet; it begins by itself. */
function Drawing({ map, method, job }: DrawingProps) {
  const name = METHODS[method];
  const extra = map.missing[method];
  useEffect(() => {
    if (!extra && job.state === "idle") job.start();
  }, [extra, job.state]);
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
  const many =
    map.shown < map.rows
      ? `${whole(map.shown)} of ${whole(map.rows)} tokens, sampled at random`
      : `${whole(map.shown)} tokens`;
  if (job.state === "running")
    return <JobProgress job={job} what={`drawing ${many} by ${name}; until then, PCA`} stop={job.stop} />;
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

interface MapFigureProps extends ViewProps {
  map: ComputedMap;
  names: Names;
}

function MapFigure({ about, settings, change, map, names }: MapFigureProps) {
  const [selecting, setSelecting] = useState(false);
  const [color, only, token] = ["color", "only", "token"].map((name) => String(settings[name])) as [
    string,
    string,
    string,
  ];
  const { named } = map;
  const find = String(settings["find"]);
  const counted = useQuery("maps.frequencies", color === "frequency" ? { table: map.table } : null);
  const near = useNear(about, map.table, token, names);
  const plane = useMemo(() => new Plane(map), [map]);
  const colors = useMemo(
    () => coloring(color, plane.ids, names, only, counted.answer, named),
    [color, plane, names, only, counted.answer],
  );
  const order = useMemo(() => byImportance(plane.ids, names, counted.answer), [plane, names, counted.answer]);
  const passed = useMemo(() => {
    if (find.trim() === "" && only === "") return null;
    const matches = matcher(find);
    return Array.from(plane.ids, (id, n) => (colors.keeps(n) && matches(names.plain(id)) ? n : -1)).filter(
      (n) => n >= 0,
    );
  }, [plane, names, colors, find]);
  const points = useMemo(() => {
    const group = passed ? new Uint8Array(colors.group.length).fill(BEHIND) : colors.group;
    for (const n of passed ?? []) group[n] = colors.group[n]!;
    return { x: plane.x, y: plane.y, group };
  }, [plane, colors, passed]);
  const box = useMemo(() => readBox(String(settings["box"])), [settings["box"]]);
  const inside = useMemo(() => plane.inside(box), [plane, box]);
  const link = (id: number) => writeLink("tokens", { token: `#${id}` }, {});
  const columns = useMemo(() => pointColumns(plane.ids, plane.x, plane.y, names, link), [plane, names]);
  const rows = useMemo(() => Array.from(plane.ids, (_, n) => n), [plane]);
  const chosen = near.answer ? plane.point(near.answer.id) : null;
  const joined =
    near.answer && chosen !== null
      ? Array.from(near.answer.ids.values, (id) => plane.point(id)).filter((point) => point !== null)
      : [];
  const title = `${whole(map.shown)} ${named ? "named " : ""}tokens by ${METHODS[map.method]}`;
  const scatter: ScatterProps = {
    title,
    points,
    name: (point) => names.shown(plane.ids[point]!),
    detail: (point) => names.line(plane.ids[point]!),
    ...(colors.groups && { groups: colors.groups }),
    ...(colors.amount && { amount: colors.amount }),
    only,
    chooseGroup: (name) => change({ only: name }),
    printed: trust(map),
    chosen,
    choose: (point) => change({ token: point === null ? "" : `#${plane.ids[point]!}` }),
    select: (_, area) => change({ box: writeBox(area) }),
    selecting,
    framed: box,
    joined,
    order,
  };
  return (
    <>
      {named && <NamedFacts named={named} />}
      <Filters
        settings={settings}
        change={change}
        colors={colors}
        grouped={named !== null && named.group_names.length > 1}
        passed={passed?.length ?? null}
      >
        <Flag label="drag selects" value={selecting} change={setSelecting} />
      </Filters>
      <div class="mapping">
        <Figure
          title={title}
          note={<Trust map={map} colors={colors.note} />}
          file={`map-${map.method}`}
          svg={() => scatterSvg(scatter)}
          rows={rows}
          columns={columns}
          code={codeOf(map)}
          how={<HowOf map={map} />}
        >
          <Scatter {...scatter} />
        </Figure>
        <div>
          {near.problem !== null && <Wrong message={near.problem} />}
          {near.answer && (
            <NearOf
              near={near.answer}
              plane={plane}
              names={names}
              link={link}
              k={joined.length}
              chosen={chosen}
              joined={joined}
              change={change}
            />
          )}
          {!near.answer && <Invitation about={about} change={change} />}
        </div>
      </div>
      {(box ?? passed) && (
        <Selected
          rows={box ? inside.filter((n) => points.group[n] !== BEHIND) : passed!}
          what={box ? "in the rectangle" : "pass the filters"}
          columns={columns}
          clear={() => (change(UNFILTERED), announce("nothing is selected"))}
        />
      )}
    </>
  );
}

/** What to do while no token is chosen. */
function Invitation({ about, change }: Pick<ViewProps, "about" | "change">) {
  return (
    <section aria-label="True neighbors">
      <h2>True neighbors</h2>
      <p class="note">Choose a point of the map, or a token:</p>
      <ul class="plain examples">
        {about.examples.map((token) => (
          <li key={token}>
            <button type="button" onClick={() => change({ token })}>
              {visibleToken(token)}
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** Return the true neighbors of a token; an exported page holds those of all. */
function useNear(about: About, table: string, token: string, names: Names): Query<MapNeighbors> {
  const exported = about.exported;
  const live = useQuery("maps.near", exported || token === "" ? null : { token, table });
  const all = useQuery("maps.neighbors", exported && token !== "" ? { table } : null);
  const stored = useMemo((): Query<MapNeighbors> | null => {
    if (!all.answer || token === "") return null;
    const id = names.find(token);
    const row = id === null ? -1 : all.answer.of.values.indexOf(id);
    if (row < 0) return { answer: null, problem: `No token here is ${token}.`, busy: false };
    const [, k = 0] = all.answer.ids.shape;
    return {
      answer: {
        id: id!,
        ids: { values: all.answer.ids.values.slice(k * row, k * row + k), shape: [k] },
        cosines: null,
      },
      problem: null,
      busy: false,
    };
  }, [all.answer, token]);
  return exported ? (stored ?? { answer: null, problem: null, busy: all.busy }) : live;
}

function Trust({ map, colors }: { map: ComputedMap; colors: string }) {
  const [kept, sampled] = trust(map);
  const some =
    !map.named && map.shown < map.rows - map.not_finite
      ? ` ${whole(map.shown)} of ${whole(map.rows)} tokens are shown, sampled at random.`
      : "";
  const broken = map.not_finite
    ? ` ${whole(map.not_finite)} rows with numbers that are not finite are not on the map.`
    : "";
  return (
    <>
      This map <b>{kept}</b> ({sampled}): near on it is often not near in the table. {colors}
      {some}
      {broken}
    </>
  );
}

interface NearProps {
  near: MapNeighbors;
  plane: Plane;
  names: Names;
  link(id: number): string;
  k: number;
  chosen: number | null;
  joined: number[];
  change: ViewProps["change"];
}

function NearOf({ near, plane, names, link, k, chosen, joined, change }: NearProps) {
  const ids = Array.from(near.ids.values);
  return (
    <section class="near" aria-label="True neighbors">
      <h2>
        True neighbors of <TokenLabel word={names.word(near.id)} text={names.text(near.id)} href={link(near.id)} />
      </h2>
      <p class="note">
        {chosen === null
          ? "This token is not among those that are drawn. "
          : `Of its ${k} neighbors that are drawn, ${plane.keeps(chosen, joined)} ` +
            `are among the ${k} nearest on this map; lines lead to them all. `}
        The nearest in the full space, by cosine:
      </p>
      <ol class="plain chips">
        {ids.map((id, n) => (
          <li key={id}>
            <button type="button" onClick={() => change({ token: `#${id}` })} title={names.line(id)}>
              <TokenLabel word={names.word(id)} text={names.text(id)} />
              {near.cosines && <small>{fixed(near.cosines.values[n]!, 3)}</small>}
            </button>
          </li>
        ))}
      </ol>
    </section>
  );
}

function codeOf({ method, name, named, ids, kept: { k } }: ComputedMap): string {
  const rows = named ? `, rows=[${Array.from(ids.values).join(", ")}]` : "";
  return [
    `made = ww.analysis.make_map(ww.read(PATH).array("${name}"${rows}), "${method}", k=${k})`,
    "made.coordinates, made.kept",
  ].join("\n");
}

function HowOf({ map }: { map: ComputedMap }) {
  const { k, queries } = map.kept;
  const ways: Record<Method, string> = {
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
  return (
    <>
      <p>{ways[map.method]}</p>
      <p>
        Kept: the mean over {whole(queries)} tokens of |N(token in the {tableName(map.table)}, by cosine) ∩ N(token on
        the map)| / {k}, where N are the {k} nearest, computed exactly. Points are drawn over each other at random, so
        that no group hides another.
      </p>
    </>
  );
}
