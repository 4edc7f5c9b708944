import { useEffect } from "react";

/** How long after g the key of a page is waited for. */
const chordFor = 1500;

function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;

  return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}

/** useKeys calls what belongs to a key, or to two after each other ("g j"), unless somebody types into a field. */
export function useKeys(keys: Record<string, () => void>): void {
  useEffect(() => {
    let first = "";
    let until = 0;

    const press = (e: KeyboardEvent) => {
      if (e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey || isTyping(e.target)) return;

      const chord = Date.now() < until ? `${first} ${e.key}` : e.key;
      const act = keys[chord] ?? keys[e.key];
      first = e.key;
      until = Date.now() + chordFor;
      if (!act) return;

      e.preventDefault();
      until = 0;
      act();
    };

    addEventListener("keydown", press);

    return () => { removeEventListener("keydown", press); };
  }, [keys]);
}
