package inventory

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// processes is a /proc with a run's process (10), its child (11), a stranger
// (20) and one of another yard's run (30).
func processes(dir string) map[string]string {
	return map[string]string{
		"proc/1/stat":     "1 (init) S 0 1 1",
		"proc/10/stat":    "10 (python3) S 1 10 10",
		"proc/10/environ": "CUDA_MPS_PIPE_DIRECTORY=" + dir + "/mps/0/pipe\x00TRAINYARD_RANK_DIR=" + dir + "/runs/j1.1.0\x00",
		"proc/10/cmdline": "/usr/bin/python3\x00-u\x00/home/ana/train.py\x00--token\x00secret\x00",
		"proc/11/stat":    "11 (odd) name) S 10 10 10",
		"proc/11/environ": "PATH=/bin\x00",
		"proc/11/cmdline": "./worker\x00--key=secret\x00",
		"proc/12/stat":    "12 (nvidia-cuda-mps) S 13 13 13",
		"proc/12/cmdline": "nvidia-cuda-mps-server\x00",
		"proc/13/stat":    "13 (nvidia-cuda-mps) S 1 13 13",
		"proc/13/environ": "CUDA_MPS_PIPE_DIRECTORY=" + dir + "/mps/0/pipe\x00",
		"proc/14/stat":    "14 (python3) S 1 14 14",
		"proc/14/environ": "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps\x00",
		"proc/20/stat":    "20 (jupyter) S 1 20 20",
		"proc/20/environ": "PATH=/bin\x00",
		"proc/30/stat":    "30 (x) S 1 30 30",
		"proc/30/environ": "TRAINYARD_RANK_DIR=/elsewhere/runs/j1.1.0\x00",
	}
}

func TestWhoUsesAGPU(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	writeFiles(t, root, processes("/data/agent"))
	me := userName(uint32(os.Getuid()))
	want := []Process{
		{PID: 10, User: me, Program: "python3 train.py", Ours: true, Seen: true, Rank: "j1.1.0"},
		{PID: 11, User: me, Program: "worker", Ours: true, Seen: true, Rank: "j1.1.0"},
		{PID: 12, User: me, Program: "nvidia-cuda-mps-server", Ours: true, Seen: true},
		{PID: 14, User: me, Program: "/opt/jupyter", Seen: true},
		{PID: 20, User: me, Program: "/opt/jupyter", Seen: true},
		{PID: 30, User: me, Program: "/opt/jupyter", Seen: true},
		{PID: 99, Program: "/opt/jupyter"},
	}

	for _, w := range want {
		p := Process{PID: w.PID, Program: "/opt/jupyter"}
		p.introduce(root, "/data/agent")

		if diff := cmp.Diff(w, p, cmp.AllowUnexported(Process{})); diff != "" {
			t.Errorf("process %d (-want +got):\n%s", w.PID, diff)
		}
	}
}

func TestUsersWithoutNameAreNumbered(t *testing.T) {
	t.Parallel()

	if got := userName(3999999999); got != "user 3999999999" {
		t.Errorf("got %q", got)
	}
}
