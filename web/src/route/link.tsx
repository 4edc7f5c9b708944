import type { AnchorHTMLAttributes, MouseEvent } from "react";

import { go, hrefOf } from "./route";

type Props = Omit<AnchorHTMLAttributes<HTMLAnchorElement>, "href"> & { to: string; query?: Record<string, string> };

/** Link goes to a page without loading everything anew; with a modifier it is a link like any other. */
export function Link({ to, query, onClick, ...rest }: Props) {
  const follow = (e: MouseEvent<HTMLAnchorElement>) => {
    onClick?.(e);
    if (e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;

    e.preventDefault();
    go(e.currentTarget.href);
  };

  return <a {...rest} href={hrefOf(to, query)} onClick={follow} />;
}
