package archive

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

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
	Bytes job.Bytes // compressed
}

// Complete lists the logs that are archived.
func (b *Archive) Complete(ctx context.Context) ([]Stored, error) {
	var list []Stored
	for info, err := range b.blobs.List(ctx, blobRoot) {
		if err != nil {
			return nil, err
		}

		// logs/JOB/RUN-UID/RANK/SEGMENT
		parts := strings.Split(info.Name, "/")
		if len(parts) != 5 {
			continue
		}

		run, uid, _ := strings.Cut(parts[2], "-")

		l, ok := parseLog(run + "-" + parts[3] + strings.TrimSuffix("-"+uid, "-"))
		if !ok {
			continue
		}

		if len(list) == 0 || list[len(list)-1].Log != l {
			list = append(list, Stored{Log: l})
		}

		list[len(list)-1].Bytes += job.Bytes(info.Size)
	}

	return list, nil
}

// parseLog reads what Log.String wrote.
func parseLog(name string) (Log, bool) {
	run, rest, _ := strings.Cut(name, "-")
	rank, uid, _ := strings.Cut(rest, "-")
	n, err := strconv.Atoi(rank)
	_, _, ok := id.Run(run).Split()

	return Log{Run: id.Run(run), UID: id.UID(uid), Rank: n}, ok && err == nil && n >= 0
}
