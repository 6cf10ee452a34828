/** The page around the views: header, navigation, theme, and the message instead of a view that fails. */

import { Component, type ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { carry, fitted, followHash, go, hashNow, readLink, writeLink } from "./link";
import { messageOf, SourceContext, useInSight, useTheme, ViewContext } from "./hooks";
import { whole } from "./numbers";
import { announce, Announcer, Waiting, Wrong } from "./parts/states";
import { Choice } from "./parts/controls";
import { type View, views } from "./views";
import type { Settings, Source } from "./source";
import type { About } from "./types";
import { chooseTheme } from "./theme";

export function Studio({ source }: { source: Source }) {
  const [about, setAbout] = useState<About | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    source.query("about", {}).then(setAbout, (why: unknown) => setProblem(messageOf(why)));
  }, [source]);
  return (
    <SourceContext.Provider value={source}>
      <Announcer />
      {about !== null ? (
        <Opened about={about} />
      ) : (
        <main>
          <h1>whatwhere studio</h1>
          {problem !== null ? <Wrong message={problem} /> : <Waiting what="opening" />}
        </main>
      )}
    </SourceContext.Provider>
  );
}

function Opened({ about }: { about: About }) {
  const shown = views(about);
  const [hash, setHash] = useState(hashNow());
  useEffect(() => followHash(setHash), []);
  useMainField();
  const link = readLink(hash);
  const view = shown.find(({ id }) => id === link.view) ?? shown[0];
  const heading = useRef<HTMLHeadingElement>(null);
  const before = useRef(view?.id);
  useEffect(() => {
    document.title = `${view ? `${view.title} · ` : ""}${about.name} · whatwhere studio`;
    if (before.current === view?.id) return;
    before.current = view?.id;
    heading.current?.focus(); // screen readers and the keyboard continue at the new view
  }, [view?.id]);
  if (!view) {
    return (
      <main>
        <Head about={about} />
        <Wrong message="This file has no token table and no positions that whatwhere knows." />
      </main>
    );
  }
  const usual = about.runs.length ? { run: about.run } : {};
  const run = String(fitted(link.given, usual)["run"] ?? "");
  carry(run ? { run } : {}, usual);
  const defaults = (run: string) => ofRun({ ...view.defaults(about), ...(view.by_run && usual) }, about, run);
  const settings = fitted(link.given, defaults(run));
  const change = (some: Settings, replace = false) => {
    const next = { ...settings, ...some };
    const other = String(next["run"] ?? run);
    if (run && settings["scheme"] === run) next["scheme"] = some["scheme"] ?? other; // a run's own positions
    const hash = writeLink(view.id, next, defaults(other));
    if (hash !== hashNow()) go(hash, replace);
  };
  return (
    <ViewContext.Provider value={{ about, run, settings, change }}>
      <a class="skip" href="#view" onClick={(event) => (event.preventDefault(), heading.current?.focus())}>
        To the view
      </a>
      <Head about={about} />
      <Navigation shown={shown} now={view} />
      <main id="view">
        <header class="view">
          <h1 ref={heading} tabIndex={-1}>
            {view.title}
          </h1>
          <p>{view.question}</p>
          {view.by_run && run && (
            <Choice label="run" name="run" options={about.runs.map((name, n) => [name, about.run_titles[n] ?? name])} />
          )}
        </header>
        {link.view !== "" && link.view !== view.id && (
          <Wrong message={`There is no view ${link.view.slice(0, 40)} of what is open here; this is ${view.title}.`} />
        )}
        <ErrorBoundary key={view.id}>
          <view.Page />
        </ErrorBoundary>
      </main>
    </ViewContext.Provider>
  );
}

/** Return the settings a view begins with: where these are a run's own positions, those of the chosen run. */
function ofRun(defaults: Settings, { runs }: About, run: string): Settings {
  return runs.includes(String(defaults["scheme"])) ? { ...defaults, scheme: run } : defaults;
}

function Head({ about }: { about: About }) {
  const table = about.tables.input;
  const facts = [
    about.kind === "fresh" ? "20 tokens with random vectors, to try things out" : (about.model ?? about.format),
    table && about.kind !== "fresh" && `${whole(table.rows)} tokens × ${whole(table.dim)}`,
    about.positions && `${whole(about.positions[0]!)} learned positions`,
    about.guessed && "token table chosen by its size",
    about.exported && "exported: interactive in part",
  ].filter(Boolean);
  return (
    <header class="head">
      <p class="brand">
        <b>whatwhere</b> studio
      </p>
      <p class="open" title={about.path}>
        <bdi>{about.name}</bdi> <span>{facts.join(" · ")}</span>
      </p>
      <ThemeButton />
    </header>
  );
}

function ThemeButton() {
  const next = useTheme() === "dark" ? "light" : "dark";
  return (
    <button type="button" class="theme" onClick={() => chooseTheme(next)} aria-label={`Show the page ${next}`}>
      {next === "dark" ? "☾ dark" : "☀ light"}
    </button>
  );
}

function Navigation({ shown, now }: { shown: View[]; now: View }) {
  const list = useInSight<HTMLUListElement>("[aria-current]", now.id);
  return (
    <nav aria-label="Views">
      <ul ref={list}>
        {[...new Set(shown.map(({ group }) => group))].map((group) => (
          <li key={group}>
            <span id={`tabs-${group}`}>{group}</span>
            <ul aria-labelledby={`tabs-${group}`}>
              {shown
                .filter((view) => view.group === group)
                .map((view) => (
                  <li key={view.id}>
                    <a href={writeLink(view.id, {}, {})} aria-current={view.id === now.id ? "page" : undefined}>
                      {view.title}
                    </a>
                  </li>
                ))}
            </ul>
          </li>
        ))}
      </ul>
    </nav>
  );
}

function useMainField(): void {
  useEffect(() => {
    const keys = (event: KeyboardEvent) => {
      if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey)) return;
      const field = document.querySelector<HTMLElement>("[data-main]");
      if (!field) return;
      event.preventDefault();
      field.focus();
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
}

/** Shows a message instead of a view that fails; the rest of the page keeps working. */
class ErrorBoundary extends Component<{ children: ComponentChildren }, { problem: string | null }> {
  override state = { problem: null as string | null };

  static override getDerivedStateFromError(problem: unknown) {
    return { problem: messageOf(problem) };
  }

  override render() {
    if (this.state.problem === null) return this.props.children;
    announce(this.state.problem);
    return <Wrong message={this.state.problem} />;
  }
}
