package server

import (
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/job"
)

func TestSmoke(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c := y.researcher("ada")
	n := y.join("n1")
	n.listen()
	j, run := n.started(c)
	d, err := c.Job(t.Context(), j)
	y.must(err)
	if d.State != job.Running {
		t.Errorf("%+v", d)
	}
	data := output(t, "o:hello\n", "e:world\n")
	if got := n.upload(run, 0, 0, data, true); got != int64(len(data)) {
		t.Error(got)
	}
	n.ends(run, 0, 0)
	page, err := c.Logs(t.Context(), j, api.LogFilter{})
	y.must(err)
	if len(page.Lines) != 2 || !page.Ended {
		t.Errorf("%+v", page)
	}
}
