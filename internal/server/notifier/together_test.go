package notifier

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// sweep submits so many jobs of ada in one file, and starts them on a node that has room for all.
func (k *kit) sweep(count int, project func(i int) string) []id.Job {
	k.Helper()

	m := yardmaster.Submit{Owner: "ada"}
	for i := range count {
		m.Jobs = append(m.Jobs, yardmaster.NewJob{Spec: &job.Spec{
			Name: fmt.Sprint("lr-", i), Run: "train", Place: job.PlaceAny, Project: project(i),
			Resources: job.Resources{Nodes: job.Range{Min: 1, Max: 1}, CPUs: 1},
		}})
	}

	jobs := k.do(m).(yardmaster.Submitted).Jobs
	k.mu.Lock()
	k.yard.Round(k.clock.Now())
	k.mu.Unlock()
	k.do(yardmaster.Tick{})

	return jobs
}

func noProject(int) string { return "" }

// ends lets a job end, as its node reports it.
func (k *kit) ends(j id.Job, how job.State) {
	k.Helper()

	report := yardmaster.RankReport{
		Run: id.NewRun(j, 1), State: job.RunEnded, Started: k.clock.Now(), Ended: k.clock.Now(),
	}

	if how == job.Cancelled {
		k.do(yardmaster.Cancel{Job: j, By: "ada"})

		report.Signalled = true
	}

	if how == job.Failed {
		report.ExitCode, report.Cause = 3, job.CauseUserCode
	}

	k.do(yardmaster.NodeReport{Node: "a", Ranks: []yardmaster.RankReport{report}})
}

// messages returns the data of what a receiver got.
func messages(t *testing.T, r *receiver) []message {
	t.Helper()

	var list []message
	for _, one := range r.all() {
		var body struct{ Data message }
		if err := json.Unmarshal([]byte(one.body), &body); err != nil {
			t.Fatal(err)
		}

		list = append(list, body.Data)
	}

	return list
}

// newSweepKit is a kit with a node.
func newSweepKit(t *testing.T) *kit {
	t.Helper()
	k := newKit(t)
	k.do(yardmaster.AddToken{By: "test", Token: tenant.Token{
		ID: "join", Kind: tenant.JoinToken, Owner: "ada", Class: string(fleet.Local), UsesLeft: 1,
		Expires: k.clock.Now().AddDate(1, 0, 0),
	}})
	k.do(yardmaster.Join{Token: "join", Name: "a", Inventory: fleet.Inventory{Address: "a", CPUs: 64000, Memory: 1 << 36}})

	return k
}

// TestTheJobsOfAFileAreReportedTogether: one message when the last has ended, whether the notifier follows or comes
// later, and none if nobody wants to hear of how they ended.
func TestTheJobsOfAFileAreReportedTogether(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		ends    []job.State
		apart   time.Duration // between two ends
		behind  bool          // the notifier looks when all have ended
		restart bool          // and is another one after each end
		title   string
		wants   map[string]int // messages for each channel
	}{
		"one after the other": {
			ends: []job.State{job.Succeeded, job.Failed, job.Succeeded}, apart: time.Second,
			title: "3 jobs (j1 to j3): 2 succeeded, 1 failed", wants: map[string]int{"all": 1, "failed": 1, "done": 1},
		},
		"by several notifiers": {
			ends: []job.State{job.Succeeded, job.Failed, job.Succeeded}, apart: time.Second, restart: true,
			title: "3 jobs (j1 to j3): 2 succeeded, 1 failed", wants: map[string]int{"all": 1, "failed": 1, "done": 1},
		},
		"a notifier that is behind": {
			ends: []job.State{job.Failed, job.Failed, job.Cancelled}, apart: time.Second, behind: true,
			title: "3 jobs (j1 to j3): 0 succeeded, 2 failed, 1 cancelled", wants: map[string]int{"all": 1, "failed": 1},
		},
		"at the same time": {
			ends:  []job.State{job.Succeeded, job.Succeeded, job.Succeeded, job.Succeeded},
			title: "4 jobs (j1 to j4): 4 succeeded, 0 failed", wants: map[string]int{"all": 1, "done": 1},
		},
		"at the same time, behind": {
			ends: []job.State{job.Succeeded, job.Succeeded, job.Succeeded, job.Succeeded}, behind: true,
			title: "4 jobs (j1 to j4): 4 succeeded, 0 failed", wants: map[string]int{"all": 1, "done": 1},
		},
		"the last is cancelled": {
			ends: []job.State{job.Succeeded, job.Cancelled}, apart: time.Second,
			title: "2 jobs (j1 to j2): 1 succeeded, 0 failed, 1 cancelled", wants: map[string]int{"all": 1, "done": 1},
		},
		"all are cancelled": {ends: []job.State{job.Cancelled, job.Cancelled}, wants: map[string]int{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newSweepKit(t)
			receivers := map[string]*receiver{"all": newReceiver(t), "failed": newReceiver(t), "done": newReceiver(t)}
			k.channel("all", receivers["all"].URL)
			k.channel("failed", receivers["failed"].URL, tenant.TopicFailed)
			k.channel("done", receivers["done"].URL, tenant.TopicDone)
			k.settle()

			jobs := k.sweep(len(tt.ends), noProject)
			for i, how := range tt.ends {
				k.ends(jobs[i], how)

				if !tt.behind {
					k.settle()
				}
				if tt.restart {
					k.restart()
				}

				if i < len(tt.ends)-1 && !tt.behind && len(receivers["all"].all()) > 0 {
					t.Errorf("notified after %d of %d had ended", i+1, len(tt.ends))
				}

				k.clock.advance(tt.apart)
			}

			for range 3 {
				k.settle()
			}

			for path, l := range k.n.lines {
				if l.waiting != 0 {
					t.Errorf("%d messages wait for channel %s", l.waiting, path)
				}
			}

			for channel, r := range receivers {
				got := messages(t, r)
				if len(got) != tt.wants[channel] {
					t.Errorf("channel %s got %d messages, want %d: %+v", channel, len(got), tt.wants[channel], got)
				}

				for i := range got {
					if title := got[i].title(); title != tt.title || got[i].Type != "jobs.ended" || got[i].Job != "" {
						t.Errorf("channel %s got %q of the type %s, want %q", channel, title, got[i].Type, tt.title)
					}
				}
			}
		})
	}
}

func TestAMessageAboutASweepNamesWhatFailed(t *testing.T) {
	t.Parallel()
	k := newSweepKit(t)
	r := newReceiver(t)
	k.channel("all", r.URL)

	jobs := k.sweep(8, noProject)
	for i, j := range jobs {
		k.clock.advance(time.Second)
		k.ends(j, []job.State{job.Succeeded, job.Failed}[min(i, 1)])
		k.settle()
	}

	if k.store.pipelines != 2 {
		t.Errorf("the jobs were read %d times, want with the first end and with the last", k.store.pipelines)
	}

	got := messages(t, r)
	if len(got) != 1 {
		t.Fatalf("%d messages", len(got))
	}

	text := got[0].text()
	for _, want := range []string{"1 succeeded, 7 failed", "failed: j2 lr-1: ", "j6 lr-5: ", "and 2 more", "owner ada"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q does not contain %q", text, want)
		}
	}
}

// TestTheJobsOfAFileAreReadOnceIfAllHaveEnded: whoever cancels a large array leaves as many ends, of which each would
// read all of its jobs.
func TestTheJobsOfAFileAreReadOnceIfAllHaveEnded(t *testing.T) {
	t.Parallel()

	for name, apart := range map[string]time.Duration{"at the same time": 0, "one after the other": time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newSweepKit(t)
			r := newReceiver(t)
			k.channel("all", r.URL)

			for _, j := range k.sweep(20, noProject) {
				k.clock.advance(apart)
				k.ends(j, job.Failed)
			}

			for range 3 {
				k.settle()
			}

			if k.store.pipelines != 2 {
				t.Errorf("the jobs were read %d times, want with the first end and with the last", k.store.pipelines)
			}

			if got := messages(t, r); len(got) != 1 || *got[0].Jobs != (counts{Failed: 20}) {
				t.Errorf("notified with %+v", got)
			}
		})
	}
}

// TestAProjectHearsOfItsOwnJobs: the jobs of a file may be of several projects.
func TestAProjectHearsOfItsOwnJobs(t *testing.T) {
	t.Parallel()
	k := newSweepKit(t)
	r := newReceiver(t)
	k.do(yardmaster.PutProject{Project: "vision", By: "test"})
	k.do(yardmaster.PutMember{Member: tenant.Member{Project: "vision", User: "ada"}, By: "test"})
	k.channelOf(tenant.Subject{Project: "vision"}, "team", r.URL)

	jobs := k.sweep(4, func(i int) string { return []string{"", "vision"}[i%2] })
	for _, j := range jobs {
		k.clock.advance(time.Second)
		k.ends(j, job.Failed)
	}

	k.settle()

	got := messages(t, r)
	if len(got) != 1 || *got[0].Jobs != (counts{Failed: 2}) || got[0].Project != "vision" {
		t.Errorf("the channel of the project got %+v", got)
	}
}

// TestTheRestOfASweepIsReportedAtOnce: a question about a job does not wait for the others.
func TestTheRestOfASweepIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	k := newSweepKit(t)
	r := newReceiver(t)
	k.channel("all", r.URL)
	jobs := k.sweep(2, noProject)
	k.do(yardmaster.NoteAccess{Calls: []yardmaster.Access{
		{Kind: "job.progress_stalled", Owner: "ada", Job: jobs[0], Reason: "silent"},
	}})
	k.settle()
	wantReasons(t, r, "silent")

	if n := len(k.n.unfinished); n != 0 {
		t.Errorf("%d files are remembered, and no job has ended", n)
	}

	k.ends(jobs[0], job.Succeeded)
	k.settle()

	if open := k.n.unfinished[string(jobs[0])]; len(open) != 1 || !open[jobs[1]] {
		t.Errorf("remembered as unfinished: %v", open)
	}

	if slices.ContainsFunc(messages(t, r), func(m message) bool { return m.Jobs != nil }) {
		t.Error("notified before the last job has ended")
	}
}
