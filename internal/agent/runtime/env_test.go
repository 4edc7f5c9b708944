package runtime

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/job"
)

func TestWhatIsInherited(t *testing.T) {
	t.Parallel()
	got := inheritedEnv(
		[]string{"HOME=/root", "LC_ALL=C", "NCCL_DEBUG=INFO", "SLURM_JOB_ID=1", "SECRET=x", "odd", "A=b=c", "http_proxy=p=q"},
	)

	want := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME": "/root", "LC_ALL": "C", "NCCL_DEBUG": "INFO", "http_proxy": "p=q",
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	least, none := 0.9, math.NaN()
	for _, test := range []struct {
		target *job.Target
		want   string
	}{
		{nil, ""},
		{&job.Target{Metric: "acc", AtLeast: &least}, `{"metric":"acc","at_least":0.9}`},
		{&job.Target{Metric: "acc", AtLeast: &none}, ""},
	} {
		if got := targetJSON(test.target); got != test.want {
			t.Errorf("%+v is told as %q", test.target, got)
		}
	}
}

func TestTheRanksMeetAtTheFirst(t *testing.T) {
	t.Parallel()
	got := distributedEnv(1, 4, []string{"10.0.0.1", "10.0.0.2"}, 29500)
	for name, want := range map[string]string{"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": "2", "RANK": "1", "PET_NPROC_PER_NODE": "4"} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}

	if got := distributedEnv(0, 1, nil, 29500); got["MASTER_ADDR"] != "127.0.0.1" || got["WORLD_SIZE"] != "1" {
		t.Errorf("alone: %v", got)
	}
}
