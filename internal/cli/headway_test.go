package cli

import (
	"strings"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
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
	y.answer("GET /api/v1/jobs/j9", d)

	p := newPerson(t).at(t, y)
	if code := p.types(t.Context(), "job", "j9"); code != exit.OK || !strings.Contains(p.stdout.String(), " 25% of 3 ") {
		t.Errorf("exit code %d:\n%s%s", code, p.stdout, p.stderr)
	}
}
