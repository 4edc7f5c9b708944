package sampler

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"trainyard/internal/agent/runtime/cgroup"
	"trainyard/internal/job"
)

var moment = time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)

// write writes the files of a folder.
func write(t *testing.T, dir string, files map[string]string) string {
	t.Helper()

	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return dir
}

func TestACgroupIsMeasuredByItsFiles(t *testing.T) {
	t.Parallel()
	v2 := write(t, t.TempDir(), map[string]string{
		"memory.current": "3000\n", "memory.stat": "anon 900\ninactive_file 1000\nactive_file 5\n",
		"cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
		"io.stat":  "8:0 rbytes=100 wbytes=20 rios=1 wios=1\n259:1 rbytes=11 wbytes=2 rios=1 wios=1\n",
	})
	v1 := write(t, t.TempDir(), map[string]string{
		"memory.usage_in_bytes": "3000\n", "memory.stat": "total_inactive_file 1000\n", "cpuacct.usage": "2500000000\n",
		"blkio.throttle.io_service_bytes": "8:0 Read 100\n8:0 Write 20\n8:16 Read 11\n8:16 Write 2\nTotal 133\n",
	})

	for name, g := range map[string]*cgroup.Group{
		"v2": {V2: true, Memory: v2}, "v1": {Memory: v1, CPU: v1, IO: v1},
	} {
		u := New().Sample(moment, map[string]Target{"a": {Group: g}})["a"]
		if u.Memory != 2000 || u.MemoryPeak != 2000 || u.CPUSeconds != 2.5 || u.Read != 111 || u.Written != 22 {
			t.Errorf("%s: measured %+v", name, u)
		}
		if u.Measures(job.ResourceNetwork) || !u.Measures(job.ResourceCPU) || !u.Measures(job.ResourceDisk) {
			t.Errorf("%s: unmeasured are %+v, want the network alone", name, u.Unmeasured)
		}
	}
}

// TestTheCPUTimeOfACgroupWithoutAccountingIsThatOfItsProcesses: what a process has used that has ended stays counted,
// and what others use after that counts, too.
func TestTheCPUTimeOfACgroupWithoutAccountingIsThatOfItsProcesses(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := write(t, t.TempDir(), map[string]string{"memory.usage_in_bytes": "3000\n", "cgroup.procs": "7\n8\n9\n"})
	s := New()
	s.root = root

	stat := func(pid string, ticks string) {
		write(t, root, map[string]string{"proc/" + pid + "/stat": pid + " (a) S 1 1 1 0 -1 0 0 0 0 0 " + ticks +
			" 0 0 0 20 0 1 0 1 1 1 1 1"})
	}

	for i, step := range []struct {
		change func()
		want   float64
	}{
		{func() { stat("7", "100"); stat("8", "2000") }, 21},
		{func() { stat("7", "150") }, 21.5},
		{func() { _ = os.RemoveAll(filepath.Join(root, "proc/8")) }, 21.5},
		{func() { stat("7", "250") }, 22.5},
	} {
		step.change()

		u := s.Sample(moment, map[string]Target{"a": {Group: &cgroup.Group{Memory: dir, CPU: dir}}})["a"]
		if !u.Measures(job.ResourceCPU) || u.CPUSeconds != step.want {
			t.Errorf("step %d: measured %v s (%v), want %v", i, u.CPUSeconds, u.Measures(job.ResourceCPU), step.want)
		}
	}
}

// TestWhatACgroupDoesNotCountIsSaidToBeUnmeasured: an absent file is not a zero.
func TestWhatACgroupDoesNotCountIsSaidToBeUnmeasured(t *testing.T) {
	t.Parallel()
	dir := write(t, t.TempDir(), map[string]string{"memory.current": "3000\n"})
	u := New().Sample(moment, map[string]Target{"a": {Group: &cgroup.Group{V2: true, Memory: dir}}})["a"]

	for r, want := range map[job.Resource]bool{ //nolint:exhaustive // GPUs are not the sampler's
		job.ResourceMemory: true, job.ResourceCPU: false, job.ResourceDisk: false, job.ResourceNetwork: false,
	} {
		if u.Measures(r) != want {
			t.Errorf("%s measured: %v, want %v: %+v", r, !want, want, u.Unmeasured)
		}
	}
}

// TestProcessesWithoutACgroupAreMeasuredByProc measures a real program that has used CPU time and that waits.
func TestProcessesWithoutACgroupAreMeasuredByProc(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo ready; read end")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	defer func() {
		_ = in.Close() // it ends with its input
		_ = cmd.Wait()
	}()

	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}

	s := New()
	targets := map[string]Target{"a": {PID: cmd.Process.Pid}, "gone": {PID: 0}}
	all := s.Sample(moment, targets)

	u := all["a"]
	if u.CPUSeconds <= 0 || u.Memory <= 0 || !u.Measures(job.ResourceCPU) || !u.Measures(job.ResourceMemory) {
		t.Errorf("measured %+v", u)
	}
	if u.Measures(job.ResourceNetwork) {
		t.Error("the network is measured although the program shares it with this one")
	}
	if gone := all["gone"]; gone.Measures(job.ResourceCPU) || gone.Measures(job.ResourceMemory) {
		t.Errorf("without a process measured %+v", gone)
	}

	// What ended processes have used stays counted.
	s.last["a"] = job.Use{CPUSeconds: 1e6, MemoryPeak: 1 << 60}
	if again := s.Sample(moment, targets)["a"]; again.CPUSeconds != 1e6 || again.MemoryPeak != 1<<60 {
		t.Errorf("after more had been measured: %+v", again)
	}
}

func TestInterfacesAreAddedUpWithoutLoopback(t *testing.T) {
	t.Parallel()

	received, sent := readInterfaces(`Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes  packets errs drop fifo colls carrier compressed
    lo:     900       9    0    0    0     0          0         0      900     9    0    0    0     0       0          0
  eth0:     100       1    0    0    0     0          0         0       20     1    0    0    0     0       0          0
  eth1:11 1 0 0 0 0 0 0 2 1 0 0 0 0 0 0
`)
	if received != 111 || sent != 22 {
		t.Errorf("received %d, sent %d", received, sent)
	}
}
