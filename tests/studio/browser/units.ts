/** What is asked of the modules of the page that need no browser. */

export * from "../../../src/whatwhere/studio/web/src/escape";
export * from "../../../src/whatwhere/studio/web/src/link";
export * from "../../../src/whatwhere/studio/web/src/numbers";
export * from "../../../src/whatwhere/studio/web/src/python";
export * from "../../../src/whatwhere/studio/web/src/source";
export * from "../../../src/whatwhere/studio/web/src/wire";
export * from "../../../src/whatwhere/studio/web/src/parts/svg";
export * from "../../../src/whatwhere/studio/web/src/parts/controls";
export * from "../../../src/whatwhere/studio/web/src/parts/labels";
export * from "../../../src/whatwhere/studio/web/src/parts/plot";
export * from "../../../src/whatwhere/studio/web/src/parts/raster";
export * from "../../../src/whatwhere/studio/web/src/parts/save";
export * from "../../../src/whatwhere/studio/web/src/views/map/labels";
