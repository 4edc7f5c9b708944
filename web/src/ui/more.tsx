interface Paged {
  hasNextPage: boolean;
  isFetchingNextPage: boolean;
  fetchNextPage: () => unknown;
}

/** More asks for the next part of a list that is read page by page. */
export function More({ list }: { list: Paged }) {
  if (!list.hasNextPage) return null;

  return (
    <p>
      <button disabled={list.isFetchingNextPage} onClick={() => list.fetchNextPage()}>
        {list.isFetchingNextPage ? "Loading…" : "Show more"}
      </button>
    </p>
  );
}
