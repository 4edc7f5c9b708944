package cli

import (
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/job"
)

func TestHeadwaySaysWhatIsKnown(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name string
		job  api.Job
		want string
	}{
		{"nothing", api.Job{}, ""},
		{"work alone", api.Job{Work: 130e6}, "? of 130M"},
		{"what is done alone", api.Job{Done: new(1500.0)}, "1.5K"},
		{"both", api.Job{Done: new(65e6), Work: 130e6, Percent: new(50.0)}, "65M of 130M (50%)"},
		{"none done", api.Job{Done: new(0.0), Work: 10, Percent: new(0.0)}, "0 of 10 (0%)"},
	} {
		if got := headway(tt.job); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestASharedGPUIsShownAsSuch(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	d := detail()
	d.Runs[0].Ranks[0].GPUs, d.Runs[0].Ranks[0].Share = []int{3}, 0.25
	d.Share = &api.JobShare{
		Node: "box1", GPU: 3,
		GPUShare: api.GPUShare{Job: "j9", Owner: "ada", Share: 0.25, Class: job.ShareNormal, Memory: 10 << 30, Use: &api.ShareUse{
			Got: 0.2, Wanted: 0.9, Mode: "token", Memory: 1 << 30, ShortSince: new(now.Add(-time.Minute)),
		}},
		Beside: []api.GPUShare{{Job: "j4", Owner: "bob", Share: 0.5, Class: job.ShareGuaranteed, Limit: 0.5}},
	}
	y.answer("GET /api/v1/jobs/j9", d)

	p := newPerson(t).at(t, y)
	if code := p.types(t.Context(), "why", "j9"); code != exit.OK {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}

	for _, words := range []string{
		" 25% of 3 ", "Shares GPU 3 of box1, and gets less than its share since ", "(1 minute ago)",
		"j9   ada    25%    20%   90%    normal      -      1 GB of 10 GB  token",
		"j4   bob    50%    -     -      guaranteed  50%    -              -",
	} {
		if !strings.Contains(p.stdout.String(), words) {
			t.Errorf("%q is not in\n%s", words, p.stdout)
		}
	}
}
