package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/clock"
)

// wantScaleKeys are the figures of the sections of the suite scale.
func wantScaleKeys() map[string][]string {
	asked := func(names ...string) []string {
		var list []string
		for _, n := range names {
			list = append(list, n+"_ms", n+"_p99_ms", n+"_cpu_ms")
		}

		return list
	}

	both := func(names ...string) []string {
		var list []string
		for _, n := range names {
			list = append(list, "together_"+n+"_ms", "together_"+n+"_p99_ms")
		}

		return list
	}

	submit16 := []string{"submit_16_per_s", "submit_16_ms", "submit_16_p99_ms", "submit_16_cores"}
	for _, n := range slices.Clone(submit16) {
		submit16 = append(submit16, n+"_under_lists")
	}

	return map[string][]string{
		"free": withFIFO(
			"free_to_start_ms_p50", "free_to_start_ms_p90", "free_to_start_ms_p99", "busy_round_ms", "busy_rounds_per_s",
			"busy_submit_ms", "busy_submit_p99_ms", "busy_cores", "busy_rss_mib",
		),
		"reads": asked(
			"jobs_page", "jobs_page_500", "jobs_deep", "jobs_owner", "jobs_queued", "jobs_failed", "jobs_owner_none",
			"jobs_name", "jobs_name_none", "jobs_since", "jobs_since_failed", "job_ended", "job_queued", "events_tail",
			"events_rare", "events_rare_tail", "nodes_page", "dry_run",
		),
		"reports": asked(
			"usage_day", "usage_month", "usage_all", "usage_user", "report_user", "report_job", "savings_month", "savings_user",
		),
		"lists": append(submit16, "list_pages_per_s", "list_page_ms", "list_page_p99_ms", "list_cores", "submit_ms",
			"submit_p99_ms", "submit_ms_under_lists", "submit_p99_ms_under_lists", "submit_p50_ratio_under_lists"),
		"feeds": {
			"follow_500_ms", "follow_500_p99_ms", "follow_500_received_pct", "follow_500_cores",
			"events_500_ms", "events_500_p99_ms", "events_500_received_pct", "events_500_cores",
		},
		"together": append(both("submit", "free_to_start", "read", "report", "events", "follow"),
			"together_cores", "together_rss_mib"),
		"backup": {"backup_s", "restore_s", "backup_submit_p99_ms"},
		"agents": wantKeys["agents"],
		"short":  wantKeys["short"],
	}
}

// isCost reports whether a figure is of processor time: the little that a short test asks for may cost less than
// can be read.
func isCost(name string) bool {
	return strings.Contains(name, "_cpu_") || strings.Contains(name, "_cores")
}

func TestEverySectionOfTheLargeYardMeasuresWhatItSays(t *testing.T) {
	t.Parallel()

	if testing.Short() {
		t.Skip("starts servers")
	}

	s := settings{
		clock: clock.Wall{}, build: newBuild(t), large: &largeYards{cache: t.TempDir()}, quick: true, notes: testNotes{t},
	}

	t.Cleanup(func() {
		if err := s.large.stop(); err != nil {
			t.Error(err)
		}
	})

	want := wantScaleKeys()

	for _, sec := range suites(s)["scale"] {
		if slices.Contains([]string{"agents", "short", "hyperqueue"}, sec.Name()) {
			continue // they are tested with those of the core; the opponent is not installed
		}

		figures, err := sec.Run(t.Context())
		if err != nil {
			t.Fatalf("section %s: %v", sec.Name(), err)
		}

		got := map[string]bool{}
		for _, f := range figures {
			got[f.name] = true
			checkPolicy(t, f)

			if f.value < 0 || f.value == 0 && !isCost(f.name) {
				t.Errorf("%s = %v, want more than nothing", f.name, f.value)
			}
		}

		slices.Sort(want[sec.Name()])
		if diff := cmp.Diff(want[sec.Name()], slices.Sorted(maps.Keys(got))); diff != "" {
			t.Errorf("figures of section %s (-want +got):\n%s", sec.Name(), diff)
		}
	}
}

func TestTasksThatRunTogetherEndTogether(t *testing.T) {
	t.Parallel()

	wait := func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	}

	if err := together(t.Context(), time.Millisecond, wait, wait); err != nil {
		t.Errorf("the end of the span: error %v", err)
	}

	broken := errors.New("broken")
	fail := func(context.Context) error { return broken }

	if err := together(t.Context(), time.Hour, wait, fail); !errors.Is(err, broken) {
		t.Errorf("a task that fails: error %v, want %v", err, broken)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if err := together(ctx, time.Hour, wait); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupt: error %v, want %v", err, context.Canceled)
	}
}

func TestTheFiguresThatWereAskedForAreInTheTableOfTheLargeYard(t *testing.T) {
	t.Parallel()

	names := map[string]bool{}

	for _, r := range append(rows(), scaleRows()...) {
		if names[r.name] {
			t.Errorf("%s is twice in the tables", r.name)
		}

		names[r.name] = true
	}

	for _, key := range []string{
		"list_pages_per_s", "submit_p50_ratio_under_lists", "usage_month_ms", "usage_user_ms", "free_to_start_ms_p50",
		"agents_1000_rss_mib", "follow_500_p99_ms", "backup_s", "short_jobs_per_s", "hyperqueue_jobs_per_s", "ahead_short",
	} {
		if !names[key] {
			t.Errorf("%s is not in the table", key)
		}
	}
}
