// Writes the compressed forms of the built files beside them; the server sends those that a browser takes.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const folder = new URL("../../cmd/trainyard/portal/assets", import.meta.url).pathname;

for (const name of readdirSync(folder)) {
  if (!/\.(js|css|svg|json)$/.test(name)) continue;

  const plain = readFileSync(join(folder, name));
  writeFileSync(join(folder, name + ".gz"), gzipSync(plain, { level: 9 }));
  writeFileSync(
    join(folder, name + ".br"),
    brotliCompressSync(plain, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: plain.length } }),
  );
}
