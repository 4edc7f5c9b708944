package main

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/clock"
	"trainyard/internal/store/storetest/pgtest"
	"trainyard/test/bench/yard"
)

// wantKeys are the figures of each section. Later runs are compared by these
// names, so none may be lost or renamed by the way.
var wantKeys = map[string][]string{
	"submit": {
		"submit_per_s_sqlite_1", "submit_keyed_per_s_sqlite_1", "submit_per_s_sqlite_64", "submit_keyed_per_s_sqlite_64",
		"submit_per_s_postgres_1", "submit_per_s_postgres_64",
	},
	"start": {"start_ms_p50", "start_ms_p99", "cli_start_ms_p50", "cli_start_ms_p99"},
	"messages": {
		"messages_per_s",
		"messages_per_s_1k_nodes",
		"messages_per_s_1k_nodes_batch_512",
		"messages_per_s_jobs_only",
	},
	"memory": {"bytes_per_queued_job"},
	"rounds": {
		"round_full_ms_1k_10k",
		"round_saturated_ms_1k_10k",
		"round_job_added_ms_1k_10k",
		"round_node_freed_ms_1k_10k",
		"round_incremental_ms_1k_10k",
		"round_full_ms_1k_100k",
		"round_saturated_ms_1k_100k",
		"round_job_added_ms_1k_100k",
		"round_node_freed_ms_1k_100k",
		"round_incremental_ms_1k_100k",
		"round_full_ms_10k_10k",
		"round_saturated_ms_10k_10k",
		"round_job_added_ms_10k_10k",
		"round_node_freed_ms_10k_10k",
		"round_incremental_ms_10k_10k",
		"round_full_ms_10k_100k",
		"round_saturated_ms_10k_100k",
		"round_job_added_ms_10k_100k",
		"round_node_freed_ms_10k_100k",
		"round_incremental_ms_10k_100k",
	},
	"restart": {"restart_s_1m", "restart_s_1m_postgres"},
	"agents":  {"agents_1000_cpu_pct", "agents_1000_rss_mib"},
}

// inProcess are the sections that start no server: they run in short tests too.
var inProcess = []string{"messages", "memory", "rounds"}

// Not parallel: the memory of this process is measured, so nothing else may run meanwhile.
func TestEverySectionMeasuresWhatItSaysQuickly(t *testing.T) {
	s := settings{clock: clock.Wall{}, quick: true, notes: testNotes{t}}
	for _, sec := range sections(s) {
		want, ours := wantKeys[sec.Name()]
		if !ours {
			continue // the opponent has tests of its own
		}

		t.Run(sec.Name(), func(t *testing.T) {
			if sec.Name() != "memory" { // the others wait until it is done
				t.Parallel()
			}

			if testing.Short() && !slices.Contains(inProcess, sec.Name()) {
				t.Skip("starts servers")
			}

			figures, err := sec.Run(t.Context())
			if errors.Is(err, pgtest.ErrMissing) && os.Getenv("CI") != "true" {
				t.Skip(err)
			}

			if err != nil {
				t.Fatal(err)
			}

			got := map[string]bool{}
			for _, f := range figures {
				got[f.name] = true

				if f.value <= 0 && f.name != "agents_1000_cpu_pct" { // twenty agents may cost less than can be read
					t.Errorf("%s = %v, want more than nothing", f.name, f.value)
				}
			}

			slices.Sort(want)
			if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got))); diff != "" {
				t.Errorf("figures (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEverySectionsFiguresAreInTheTable(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, r := range rows() {
		if names[r.name] {
			t.Errorf("%s is twice in the table", r.name)
		}

		names[r.name] = true
	}

	for _, key := range []string{
		"submit_per_s_sqlite_1", "submit_per_s_sqlite_64", "submit_per_s_postgres_64", "slurm_submit_per_s_1", "slurm_submit_per_s_64",
		"start_ms_p50", "start_ms_p99", "slurm_start_ms_p50", "messages_per_s", "round_full_ms_10k_100k", "round_incremental_ms_10k_100k",
		"bytes_per_queued_job", "restart_s_1m", "agents_1000_cpu_pct",
	} {
		if !names[key] {
			t.Errorf("%s is not in the table", key)
		}
	}
}

// testNotes sends progress to the test's log.
type testNotes struct{ t *testing.T }

func (n testNotes) Write(text []byte) (int, error) {
	n.t.Logf("%s", text)
	return len(text), nil
}

func TestASubmissionThatTheServerLostIsNoticed(t *testing.T) {
	t.Parallel()

	if testing.Short() {
		t.Skip("starts a server")
	}

	s := submitSection{settings{clock: clock.Wall{}, quick: true, notes: testNotes{t}}}

	err := s.bench(t.Context(), func(_, binary string) (err error) {
		y, err := yard.Start(t.Context(), yard.Options{Binary: binary})
		if err != nil {
			return err
		}

		defer func() { err = errors.Join(err, y.Stop()) }()

		client, err := newSubmitter(y, 0, false)
		if err != nil {
			return err
		}

		defer client.client.Close()

		if err := client.submit(t.Context()); err != nil {
			return err
		}

		client.acked = append(client.acked, "j2000")

		if err := y.Kill(); err != nil {
			return err
		}

		if err := s.verify(
			t.Context(),
			y,
			[]*submitter{client},
		); err == nil ||
			!strings.Contains(err.Error(), "acknowledged j2000 and lost it") {
			t.Errorf("verify = %v, want an error about the lost job", err)
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
