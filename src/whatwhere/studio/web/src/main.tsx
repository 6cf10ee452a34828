/** Start the page. */

import { render } from "preact";
import { startAddress } from "./link";
import { exportedHere, ExportedSource } from "./exported";
import { Studio } from "./shell";
import { LiveSource } from "./source";
import { startTheme } from "./theme";
import "./studio.css";

// The key is no longer needed: remove it from the address and the history.
if (new URLSearchParams(location.search).has("token")) {
  history.replaceState(null, "", location.pathname + location.hash);
}
startTheme();
startAddress();
const exported = exportedHere();
render(
  <Studio source={exported ? new ExportedSource(exported) : new LiveSource()} />,
  document.getElementById("studio")!,
);
