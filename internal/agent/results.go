package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"trainyard/internal/api"
	"trainyard/internal/atomicfile"
)

// results keeps the ends of ranks that the runtime never had: those that were
// refused, or that could not even be begun. Each is a file, so that a rank
// reported as ended stays so over a restart.
type results struct {
	dir string
	all map[key]api.RankReport
}

func openResults(dir string) (*results, error) {
	r := &results{dir: dir, all: map[key]api.RankReport{}}

	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create results folder: %w", err)
	}

	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}

	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if !strings.HasSuffix(entry.Name(), ".json") { // half written
			if err := os.Remove(path); err != nil {
				return nil, fmt.Errorf("clear results: %w", err)
			}

			continue
		}

		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read results: %w", err)
		}

		var report api.RankReport
		if json.Unmarshal(text, &report) != nil {
			// Cut short by a power cut: the rank was never begun, so it can be tried again.
			if err := os.Remove(path); err != nil {
				return nil, fmt.Errorf("clear results: %w", err)
			}

			continue
		}

		r.all[key{report.Run, report.Rank}] = report
	}

	return r, nil
}

func (r *results) path(k key) string {
	return filepath.Join(r.dir, string(k.run)+"."+strconv.Itoa(k.rank)+".json")
}

// put keeps a result. It counts even if it could not be written: then it
// lasts until the agent ends.
func (r *results) put(report api.RankReport) error {
	k := key{report.Run, report.Rank}
	r.all[k] = report

	text, err := json.Marshal(report)
	if err == nil {
		err = atomicfile.Write(r.path(k), text, atomicfile.SingleWriter())
	}

	if err != nil {
		return fmt.Errorf("store result of %s rank %d: %w", k.run, k.rank, err)
	}

	return nil
}

// keepOnly drops the results for which keep is false.
func (r *results) keepOnly(keep func(key, api.RankReport) bool) error {
	var errs []error
	for k, result := range r.all {
		if !keep(k, result) {
			delete(r.all, k)
			errs = append(errs, removeIfThere(r.path(k)))
		}
	}

	return errors.Join(errs...)
}
