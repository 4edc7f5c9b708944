package job_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/job"
)

func TestGangTakesTheFirstAddressThatAllReach(t *testing.T) {
	t.Parallel()

	fast, slow, bridge := "192.168.0.", "10.0.0.", "172.17.0.1"
	all := [][]string{{fast + "1", slow + "1", bridge}, {fast + "2", slow + "2"}, {fast + "3", slow + "3", bridge}}
	standard := []string{slow + "1", slow + "2", slow + "3"}

	for _, c := range []struct {
		name    string
		probes  []*job.Probe
		want    []string
		missing []job.Unreached
	}{
		{
			name: "all reach the fast ones",
			probes: []*job.Probe{
				{Port: 1, Reached: []uint64{0, 3, 3}}, {Port: 1, Reached: []uint64{3, 0, 3}}, {Port: 1, Reached: []uint64{3, 3, 0}},
			},
			want: []string{fast + "1", fast + "2", fast + "3"},
		},
		{
			name: "one does not reach a fast one",
			probes: []*job.Probe{
				{Port: 1, Reached: []uint64{0, 3, 3}}, {Port: 1, Reached: []uint64{2, 0, 3}}, {Port: 1, Reached: []uint64{3, 3, 0}},
			},
			want: []string{slow + "1", fast + "2", fast + "3"},
		},
		{
			name: "one reaches nobody",
			probes: []*job.Probe{
				{Port: 1, Reached: []uint64{0, 2, 2}}, {Port: 1}, {Port: 1, Reached: []uint64{2, 2, 0}},
			},
			want:    standard,
			missing: []job.Unreached{{From: 1, To: 0}, {From: 1, To: 2}},
		},
		{
			name: "nobody reached anybody",
			probes: []*job.Probe{
				{Port: 1}, {Port: -1}, {Port: 1},
			},
			want: standard,
			missing: []job.Unreached{
				{From: 1, To: 0}, {From: 2, To: 0}, {From: 0, To: 2}, {From: 1, To: 2},
			},
		},
		{
			name:   "one of an earlier version",
			probes: []*job.Probe{{Port: 1, Reached: []uint64{0, 0, 3}}, nil, {Port: 1, Reached: []uint64{1, 0, 0}}},
			want:   []string{fast + "1", slow + "2", fast + "3"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			network := job.GangAddresses{Default: standard, Candidates: all, Probes: c.probes}
			got, missing := network.Choose()

			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}

			if diff := cmp.Diff(c.missing, missing); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// failed is a rank that failed some seconds after the start.
func failed(rank, seconds int, reason string) job.Rank {
	return job.Rank{
		Rank: rank, Node: "n", State: job.RunEnded, Cause: job.CauseUserCode, ExitCode: 1, Reason: reason,
		Started: time.Unix(1, 0), Ended: time.Unix(int64(10+seconds), 0),
	}
}

// stopped is a rank that was stopped because of another.
func stopped(rank int, err string) job.Rank {
	return job.Rank{
		Rank: rank, Node: "n", State: job.RunEnded, Signalled: true, Error: err,
		Started: time.Unix(1, 0), Ended: time.Unix(20, 0),
	}
}

func TestFirstFailingRankIsNamed(t *testing.T) {
	t.Parallel()

	lost := "exit code 1; RuntimeError: [../gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.1]:33"

	for _, c := range []struct {
		name  string
		ranks []job.Rank
		want  int
		says  string
	}{
		{"the earliest", []job.Rank{failed(0, 3, "exit code 1"), failed(1, 2, "exit code 7")}, 1, "exit code 7"},
		{
			"one that lost another is a consequence",
			[]job.Rank{failed(0, 1, lost), failed(1, 2, "exit code 7")}, 1, "exit code 7",
		},
		{
			"also of one that was stopped before its launcher noticed",
			[]job.Rank{failed(0, 1, lost), stopped(1, "ValueError: a bad batch"), stopped(2, "")}, 1, "ValueError: a bad batch",
		},
		{"all lost each other", []job.Rank{failed(0, 2, lost), failed(1, 1, lost)}, 1, "Connection closed"},
		{
			"one that was only stopped",
			[]job.Rank{stopped(0, "ValueError: handled"), failed(1, 9, "exit code 3")}, 1, "exit code 3",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			run := job.Run{Ranks: c.ranks, StopFor: job.CauseUserCode}
			cause, rank := run.Verdict()

			if cause != job.CauseUserCode || rank.Rank != c.want {
				t.Errorf("rank %d decided, with %q", rank.Rank, cause)
			}

			got := run.DescribeFailure(cause, rank)
			if !strings.HasPrefix(got, "rank 1 of ") || !strings.Contains(got, c.says) {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestMemoryOfACulpritDecides(t *testing.T) {
	t.Parallel()

	out := failed(1, 5, "out of GPU memory: CUDA out of memory")
	out.Cause = job.CauseGPUOOM
	run := job.Run{StopFor: job.CauseUserCode, Ranks: []job.Rank{
		failed(0, 1, "exit code 1; RuntimeError: Connection reset by peer"), out, stopped(2, ""),
	}}

	if cause, rank := run.Verdict(); cause != job.CauseGPUOOM || rank.Rank != 1 {
		t.Errorf("rank %d decided, with %q", rank.Rank, cause)
	}
}

func TestOrderedStopOfAGangIsItsCause(t *testing.T) {
	t.Parallel()

	run := job.Run{StopFor: job.CausePreempted, Ranks: []job.Rank{
		stopped(0, ""), failed(1, 5, "exit code 1; RuntimeError: Connection reset by peer"),
	}}

	if cause, _ := run.Verdict(); cause != job.CausePreempted {
		t.Errorf("ended with %q", cause)
	}
}
