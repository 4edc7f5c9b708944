package archive

import (
	"context"
	"fmt"
	"iter"
	"os"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Unfinished lists the logs that are still written, or were when the server ended.
func (b *Archive) Unfinished() ([]Log, error) {
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return nil, fmt.Errorf("list logs: %w", err)
	}

	var list []Log
	for _, e := range entries {
		if l, ok := parseLog(e.Name()); ok {
			list = append(list, l)
		}
	}

	return list, nil
}

// Stored is a log that is archived, and what it takes.
type Stored struct {
	Log
	Bytes  job.Bytes // compressed; 0 if there is nothing in it
	At     time.Time // when the last of it was stored
	Former bool      // it has names of an earlier version; see Move
}

// Complete lists the logs that are archived. One that is being moved may come twice.
func (b *Archive) Complete(ctx context.Context) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		var last Stored

		for info, err := range b.blobs.List(ctx, blobRoot) {
			if err != nil {
				yield(Stored{}, err)
				return
			}

			l, former, ok := logOf(info.Name)
			if !ok {
				continue
			}

			if l != last.Log || former != last.Former { // the segments of a log come one after the other
				if last.Run != "" && !yield(last, nil) {
					return
				}

				last = Stored{Log: l, Former: former}
			}

			last.Bytes += job.Bytes(info.Size)
			if info.Stored.After(last.At) {
				last.At = info.Stored
			}
		}

		if last.Run != "" {
			yield(last, nil)
		}
	}
}

// logOf returns the log that a blob is a segment of, and whether it has a name of an earlier version.
func logOf(name string) (l Log, former, ok bool) {
	parts := strings.Split(name, "/")

	switch len(parts) {
	case 3: // logs/FOLDER/LOG.SEGMENT.gz
		text := strings.TrimSuffix(parts[2], ".gz")
		l, ok = parseLog(text[:max(0, strings.LastIndexByte(text, '.'))])
	case 5: // logs/JOB/RUN-UID/RANK/SEGMENT.gz
		run, uid, _ := strings.Cut(parts[2], "-")
		l, ok = parseLog(run + "-" + parts[3] + strings.TrimSuffix("-"+uid, "-"))
		former = true
	}

	return l, former, ok
}

// parseLog reads what Log.String wrote.
func parseLog(name string) (Log, bool) {
	run, rest, _ := strings.Cut(name, "-")
	rank, uid, _ := strings.Cut(rest, "-")
	n, err := strconv.Atoi(rank)
	_, _, ok := id.Run(run).Split()

	return Log{Run: id.Run(run), UID: id.UID(uid), Rank: n}, ok && err == nil && n >= 0
}
