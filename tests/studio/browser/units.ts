/** What units.mjs asks of the page's modules that need no browser. */

export { fitted, readLink, writeLink } from "../../../src/whatwhere/studio/web/src/link";
export { fixed, ranged, told } from "../../../src/whatwhere/studio/web/src/numbers";
export { Grid, pixel, Raster, whole } from "../../../src/whatwhere/studio/web/src/parts/raster";
export { csv } from "../../../src/whatwhere/studio/web/src/parts/save";
export { placeOf, turned, valueAt, withTurned } from "../../../src/whatwhere/studio/web/src/parts/slider";
export { runnable } from "../../../src/whatwhere/studio/web/src/python";
export { cut, face, readable, signs } from "../../../src/whatwhere/studio/web/src/signs";
export { unpack } from "../../../src/whatwhere/studio/web/src/wire";
