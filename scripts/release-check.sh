#!/usr/bin/env bash
# Builds the release twice from the same commit, in two folders with a build cache each, and compares every
# digest. PLATFORMS=linux/amd64 for a part. Slow: everything is compiled twice.
set -euo pipefail
cd "$(dirname "$0")/.."

commit=$(git rev-parse HEAD)
[ -z "$(git status --porcelain)" ] || echo "release-check: there are changes that are not committed; what is checked is $commit"

work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT

build() {
  local folder=$1
  mkdir -p "$folder"
  git archive "$commit" | tar -x -C "$folder"
  make --no-print-directory -C "$folder" release COMMIT="$commit" PLATFORMS="${PLATFORMS:-}" >/dev/null
}

SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

build "$work/first"
# Another folder of another length, and nothing taken over from the first build.
GOCACHE="$work/cache" build "$work/a/second/folder"

if ! diff "$work/first/build/release/SHA256SUMS" "$work/a/second/folder/build/release/SHA256SUMS"; then
  echo "release-check: the two builds differ" >&2
  exit 1
fi
cat "$work/first/build/release/SHA256SUMS"
echo "release-check: two builds of $commit have the same digests"
