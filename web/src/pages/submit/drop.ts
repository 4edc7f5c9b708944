import { useEffect, useEffectEvent, useState } from "react";

/** useDrop takes what is dropped anywhere on the page, and reports whether something is held over it. */
export function useDrop(take: (entry: FileSystemEntry | null, file: File | null) => void): boolean {
  const [over, setOver] = useState(false);

  const drop = useEffectEvent((e: DragEvent) => {
    e.preventDefault();
    setOver(false);
    const item = [...(e.dataTransfer?.items ?? [])].find((i) => i.kind === "file");
    if (item) take(item.webkitGetAsEntry(), item.getAsFile());
  });

  useEffect(() => {
    const stop = new AbortController();
    const on = { signal: stop.signal };
    addEventListener("dragover", (e) => {
      e.preventDefault();
      setOver(true);
    }, on);
    addEventListener("dragleave", (e) => { if (e.relatedTarget === null) setOver(false); }, on);
    addEventListener("drop", (e) => { drop(e); }, on);

    return () => { stop.abort(); };
  }, []);

  return over;
}
