// What the unit tests share: modules of the portal as Vite loads them, and what a component renders, without a browser.
import { createElement } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { createServer } from "vite";

const root = new URL("../..", import.meta.url).pathname;
const server = await createServer({
  root, logLevel: "error", appType: "custom", server: { middlewareMode: true, hmr: false, ws: false, watch: null },
  optimizeDeps: { noDiscovery: true },
});

globalThis.document = { baseURI: "http://portal/" }; // links are relative to it

export const load = (path) => server.ssrLoadModule(path);

export const close = () => server.close();

/** The words of what a component renders, without tags. */
export function textOf(component, props) {
  return htmlOf(component, props).replace(/<\/?(li|div|dt|dd)\b[^>]*>/g, " ").replace(/<[^>]*>/g, "").replace(/\s+/g, " ").trim();
}

export const htmlOf = (component, props) => renderToStaticMarkup(createElement(component, props));
