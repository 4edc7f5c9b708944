package main

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/clock"
	"trainyard/internal/store/storetest/pgtest"
	"trainyard/test/bench/information"
	"trainyard/test/bench/yard"
	"trainyard/test/golden"
)

// wantKeys are the figures of each section. Later runs are compared by these
// names, so none may be lost or renamed by the way.
var wantKeys = map[string][]string{
	"submit": {
		"submit_per_s_sqlite_1", "submit_keyed_per_s_sqlite_1", "submit_per_s_sqlite_64", "submit_keyed_per_s_sqlite_64",
		"submit_per_s_postgres_1", "submit_per_s_postgres_64",
	},
	"start": {
		"start_ms_p50", "start_ms_p99", "cli_start_ms_p50", "cli_start_ms_p99", "start_isolated_ms_p50",
		"start_isolated_ms_p99",
	},
	"short": {
		"short_jobs_per_s", "short_server_cpu_ms", "short_agent_cpu_ms", "short_children_cpu_ms",
		"short_isolated_jobs_per_s", "short_isolated_server_cpu_ms", "short_isolated_agent_cpu_ms",
		"short_isolated_children_cpu_ms",
	},
	"messages": withFIFO(
		"messages_per_s",
		"messages_per_s_1k_nodes",
		"messages_per_s_1k_nodes_batch_512",
		"messages_per_s_jobs_only",
	),
	"memory": {"bytes_per_queued_job"},
	"rounds": withFIFO(
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
	),
	"restart": {"restart_s_1m", "restart_s_1m_postgres"},
	"agents":  {"agents_1000_cpu_pct", "agents_1000_rss_mib"},
}

// withFIFO adds the names of the figures that are measured with FIFO too.
func withFIFO(names ...string) []string {
	for _, n := range slices.Clone(names) {
		names = append(names, n+"_fifo")
	}

	return names
}

// inProcess are the sections that start no server: they run in short tests too.
var inProcess = []string{"messages", "memory", "rounds"}

// Not parallel: the memory of this process is measured, so nothing else may run meanwhile.
func TestEverySectionMeasuresWhatItSaysQuickly(t *testing.T) {
	s := settings{clock: clock.Wall{}, build: newBuild(t), quick: true, notes: testNotes{t}}
	for _, sec := range suites(s)["core"] {
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
				checkPolicy(t, f)

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

func TestTooLittleLoadIsNotMeasured(t *testing.T) {
	t.Parallel()

	if err := intended(20, 20, 200, 181, 0); err != nil {
		t.Error(err)
	}

	for name, err := range map[string]error{
		"a node that is not ready": intended(20, 19, 200, 200, 0),
		"too few reports":          intended(20, 20, 200, 179, 0),
		"a failed report":          intended(20, 20, 200, 200, 1),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// newBuild is the binary that the sections of a test measure.
func newBuild(t *testing.T) *build {
	t.Helper()

	b := &build{}
	t.Cleanup(func() {
		if err := b.remove(); err != nil {
			t.Error(err)
		}
	})

	return b
}

// checkPolicy makes sure that a figure is of the policy that its name stands for.
func checkPolicy(t *testing.T, f figure) {
	t.Helper()

	policy, named := strings.CutPrefix(f.note, "policy ")
	if !named {
		return
	}

	want := defaultPolicy + ";"
	if strings.HasSuffix(f.name, "_fifo") {
		want = "fifo;"
	}

	if !strings.HasPrefix(policy, want) {
		t.Errorf("%s: %s; want policy %s", f.name, f.note, want)
	}
}

// The figures without a suffix are those of the policy that a server runs by default, and a yard has the policy that
// it was asked for.
func TestThePlainFiguresAreOfTheDefaultPolicy(t *testing.T) {
	t.Parallel()

	reference, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "config.md"))
	if err != nil {
		t.Fatal(err)
	}

	if !strings.Contains(string(reference), "| `--policy` | `TRAINYARD_POLICY` | `policy` | `"+defaultPolicy+"` |") {
		t.Errorf("%s is not the default policy of the server", defaultPolicy)
	}

	if c := contenders(); c[0] != (contender{defaultPolicy, ""}) || c[1] != (contender{"fifo", "_fifo"}) {
		t.Errorf("contenders = %v", c)
	}

	for _, c := range contenders() {
		y, err := newYard(clock.Wall{}.Now(), 1, time.Second, c.name)
		if err != nil {
			t.Fatal(err)
		}

		if y.policy != c.name {
			t.Errorf("a yard with policy %s has %s", c.name, y.policy)
		}
	}
}

// What each side knows is on the page of its suite.
func TestThePagesSayWhatEachSideKnows(t *testing.T) {
	t.Parallel()

	for suite, name := range map[string]string{"core": "benchmarks.md", "scale": "benchmarks-scale.md"} {
		path := filepath.Join("..", "..", "docs", "explanation", name)

		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		want, err := information.Page(string(page), comparisons()[suite])
		if err != nil {
			t.Fatal(err)
		}

		golden.Compare(t, path, want)
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
		"start_ms_p50", "start_ms_p99", "slurm_start_ms_p50", "messages_per_s", "messages_per_s_fifo",
		"round_full_ms_10k_100k", "round_full_ms_10k_100k_fifo",
		"round_incremental_ms_10k_100k", "round_incremental_ms_10k_100k_fifo",
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

	s := submitSection{settings{clock: clock.Wall{}, build: newBuild(t), quick: true, notes: testNotes{t}}}

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
