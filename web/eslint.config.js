import hooks from "eslint-plugin-react-hooks";
import { defineConfig } from "eslint/config";
import ts from "typescript-eslint";

export default defineConfig(
  { ignores: ["node_modules/", "src/api/schema.ts"] },
  {
    files: ["src/**/*.ts", "src/**/*.tsx"],
    extends: [...ts.configs.strictTypeChecked, hooks.configs.flat["recommended-latest"]],
    languageOptions: { parserOptions: { projectService: true } },
    rules: {
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      "@typescript-eslint/switch-exhaustiveness-check": "off",
      "max-len": ["error", { code: 120, ignoreUrls: true }],
      "no-restricted-globals": ["error", { name: "fetch", message: "Use request of api/client.ts." }],
    },
  },
  { files: ["src/api/client.ts"], rules: { "no-restricted-globals": "off" } },
);
