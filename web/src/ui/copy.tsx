import { useState } from "react";

/** CopyButton copies a text. */
export function CopyButton({ text, label = "Copy", primary = false }: {
  text: () => string;
  label?: string;
  primary?: boolean;
}) {
  const [state, setState] = useState<"" | "copied" | "refused">("");
  const copy = async () => { setState((await copyText(text())) ? "copied" : "refused"); };

  const said = state === "copied" ? "Copied" : state === "refused" ? "Select and copy it yourself" : "";

  return (
    <>
      <button type="button" className={primary ? "primary" : undefined} onClick={() => void copy()}>
        {said === "" ? label : said}
      </button>
      <span className="hidden" role="status">{said}</span>
    </>
  );
}

/** Reports whether it was copied. Browsers have a clipboard for pages with TLS and of this machine alone. */
async function copyText(text: string): Promise<boolean> {
  const clipboard = (navigator as Partial<Navigator>).clipboard;

  try {
    await clipboard?.writeText(text);

    return clipboard !== undefined;
  } catch {
    return false; // the user or a policy does not allow it
  }
}
