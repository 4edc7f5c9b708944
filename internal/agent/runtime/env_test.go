package runtime

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/job"
)

func TestWhatIsInherited(t *testing.T) {
	t.Parallel()
	got := inheritedEnv(
		[]string{"HOME=/root", "LC_ALL=C", "NCCL_DEBUG=INFO", "SLURM_JOB_ID=1", "SECRET=x", "odd", "A=b=c", "http_proxy=p=q"},
		nil,
	)

	want := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME": "/root", "LC_ALL": "C", "NCCL_DEBUG": "INFO", "http_proxy": "p=q",
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// An unchanged Lightning script failed because the machine's settings of MPI did not reach it (issue 16, part 12).
func TestTheSettingsOfTheMachineReachPrograms(t *testing.T) {
	t.Parallel()

	for _, name := range []string{
		"LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_CACHE_PATH", "NCCL_IB_HCA", "UCX_TLS", "OMPI_MCA_btl", "PMIX_MCA_gds",
		"MODULEPATH", "LOADEDMODULES", "LMOD_CMD", "LC_CTYPE", "HTTPS_PROXY",
	} {
		if !passes(name, nil) {
			t.Errorf("%s does not reach programs", name)
		}
	}

	for _, name := range []string{
		"TRAINYARD_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "NCCL_AUTH_TOKEN", "SLURM_JOB_ID", "SSH_AUTH_SOCK",
		"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMIX_SERVER_URI41",
	} {
		if passes(name, nil) {
			t.Errorf("%s reaches programs", name)
		}
	}
}

func TestTheOperatorAddsVariables(t *testing.T) {
	t.Parallel()
	more := []string{"MYLIB_*", "SITE_TOKEN", "TRAINYARD_*"}

	for name, want := range map[string]bool{
		"MYLIB_PATH": true, "MYLIB_SECRET": false, "SITE_TOKEN": true, "OTHER": false, "TRAINYARD_TOKEN": false,
		"TRAINYARD_DATA": false,
	} {
		if got := passes(name, more); got != want {
			t.Errorf("%s reaches programs: %v, want %v", name, got, want)
		}
	}

	for _, bad := range []string{"*", "", "A=B", "A*B", "TRAINYARD_TOKEN", "TRAINYARD_*"} {
		if err := CheckPassEnv([]string{"OK_*", bad}); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}

	if err := CheckPassEnv([]string{"OMPI_MCA_btl", "MYLIB_*"}); err != nil {
		t.Error(err)
	}
}

func TestProxiesLoseTheirCredentials(t *testing.T) {
	t.Parallel()

	for value, want := range map[string]string{
		"http://ann:secret@proxy:3128/": "http://proxy:3128/",
		"http://proxy:3128":             "http://proxy:3128",
		"ann:se@cret@proxy:3128":        "proxy:3128",
		"http://proxy/a@b":              "http://proxy/a@b",
	} {
		if got := inheritedEnv([]string{"HTTPS_PROXY=" + value}, nil)["HTTPS_PROXY"]; got != want {
			t.Errorf("%q becomes %q, want %q", value, got, want)
		}
	}

	if got := inheritedEnv([]string{"NO_PROXY=a@b,10.0.0.0/8"}, nil)["NO_PROXY"]; got != "a@b,10.0.0.0/8" {
		t.Errorf("NO_PROXY becomes %q", got)
	}
}

func TestWhatWasPassedIsNamed(t *testing.T) {
	t.Parallel()
	base := inheritedEnv([]string{"HOME=/root", "NCCL_DEBUG=INFO", "LC_ALL=C", "CUDA_HOME=/cuda", "UCX_TLS=tcp"}, nil)

	if got := passedNames(base, map[string]string{"UCX_TLS": "rc"}); got != "CUDA_HOME NCCL_DEBUG" {
		t.Errorf("it names %q", got)
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
	spec := rundir.Spec{Rank: 1, Launch: api.Launch{GPUs: []int{0, 1, 2, 3}, MasterPort: 29500}}
	got := spec.DistributedEnv([]string{"10.0.0.1", "10.0.0.2"})
	for name, want := range map[string]string{
		"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "RANK": "1",
		"PET_NPROC_PER_NODE": "4",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}

	if got := (rundir.Spec{}).DistributedEnv(nil); got["MASTER_ADDR"] != "127.0.0.1" || got["WORLD_SIZE"] != "1" {
		t.Errorf("alone: %v", got)
	}
}
