import { useState } from "react";

/** Changed lets what surrounds it light up for a moment when a value that is on the screen has become another one. */
export function Changed({ of }: { of: number }) {
  const [first] = useState(of);

  return of === first ? null : <span key={of} className="changed" aria-hidden="true" />;
}
