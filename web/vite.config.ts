import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// Addresses are relative to <base> of index.html, so that the portal also works below a path. The server replaces
// that element by what fits the depth of a page.
export default defineConfig({
  base: "./",
  plugins: [react()],
  build: {
    outDir: "../cmd/trainyard/portal",
    emptyOutDir: true,
    assetsInlineLimit: 0, // the content security policy allows nothing inline
    modulePreload: { polyfill: false },
    target: "es2022",
  },
});
