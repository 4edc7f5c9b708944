package server

import (
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/job"
)

// Of a rank that has printed nothing its report is all that the server gets: no upload, and no blob.
func TestARunWithoutOutputIsOverForThoseWhoFollow(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, n := y.researcher("ada"), y.join("n1")
	n.listen()
	j, run := n.started(c)
	w := watch(t, c, j, api.LogFilter{})

	reply, err := n.Report(t.Context(), api.Report{Capability: api.Capability, Boot: "b", Ranks: []api.RankReport{{
		Run: run, State: job.RunEnded, Started: y.clock.Now(), Ended: y.clock.Now(), Silent: true,
	}}})
	if err != nil || !reply.Silent {
		t.Errorf("the server takes silent ranks: %v, %v", reply.Silent, err)
	}

	if lines := w.end(); len(lines) != 0 {
		t.Errorf("lines %q", lines)
	}

	page, err := c.Logs(t.Context(), j, api.LogFilter{})
	if err != nil || !page.Ended || len(page.Lines) != 0 {
		t.Errorf("its output is %+v, %v; want none, and the end", page, err)
	}

	// One whose report does not say so may still have output on its node.
	j, run = n.started(c)
	n.ends(run, 0, 0)
	y.advance(lateOutput) // so that it is not waited for

	page, err = c.Logs(t.Context(), j, api.LogFilter{})
	if err != nil || page.Ended {
		t.Errorf("its output is %+v, %v; want no end", page, err)
	}
}
