package inventory

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

func TestFakeGPUs(t *testing.T) {
	t.Parallel()
	all, err := ParseFake("2xA100:80GB, 1xH100-SXM:80GB")
	if err != nil {
		t.Fatal(err)
	}

	if len(all) != 3 {
		t.Fatalf("%d GPUs, want 3", len(all))
	}

	for i, gpu := range all {
		if !gpu.Fake || !strings.Contains(gpu.Model, "(fake)") || !strings.Contains(gpu.UUID, "FAKE") || gpu.Index != i ||
			gpu.Error != "" {
			t.Errorf("not plainly labelled: %+v", gpu)
		}
	}

	if all[0].Peak != 312 || all[0].Bandwidth != 2039 || all[0].Watts != 400 {
		t.Errorf("a declared A100 is not as fast as one: %+v", all[0])
	}

	if kind := (job.GPUKind{Model: "A100", Memory: 80 << 30}); !kind.Matches(all[0].Model, all[0].Memory) ||
		kind.Matches(all[2].Model, all[2].Memory) {
		t.Error("a fake A100 must match A100, and a fake H100 must not")
	}

	if none, err := ParseFake(" "); err != nil || none != nil {
		t.Errorf("nothing declared gives %v, %v", none, err)
	}
}

func TestFakeGPUsRefused(t *testing.T) {
	t.Parallel()

	for _, text := range []string{"A100", "8", "0xA100:80GB", "-1xA100:80GB", "8xA100", "8x:80GB", "8xA100:80", "2000xA100:80GB", "1000xA100:80GB,1000xA100:80GB", "8xA100:80GB,", "1x -:80GB", "8xA100:0GB"} {
		if got, err := ParseFake(text); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%q gives %d GPUs, %v", text, len(got), err)
		}
	}
}

func TestCgroupBounds(t *testing.T) {
	t.Parallel()
	const meminfo = "MemTotal:       16384 kB\nMemFree: 1 kB\n"
	tests := []struct {
		name   string
		files  map[string]string
		cpus   job.CPUs
		memory job.Bytes
	}{
		{"none", map[string]string{"proc/meminfo": meminfo}, 4000, 16 << 20},
		{
			"version 2, unbounded",
			map[string]string{
				"proc/meminfo":             meminfo,
				"proc/self/cgroup":         "0::/\n",
				"sys/fs/cgroup/cpu.max":    "max 100000\n",
				"sys/fs/cgroup/memory.max": "max\n",
			},
			4000,
			16 << 20,
		},
		{
			"version 2, bounded by a parent",
			map[string]string{
				"proc/meminfo":               meminfo,
				"proc/self/cgroup":           "0::/a/b\n",
				"sys/fs/cgroup/a/cpu.max":    "150000 100000\n",
				"sys/fs/cgroup/a/b/cpu.max":  "max 100000\n",
				"sys/fs/cgroup/a/memory.max": "1048576\n",
			},
			1500,
			1 << 20,
		},
		{
			"version 1",
			map[string]string{
				"proc/meminfo":     meminfo,
				"proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/x\n",
				"sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us":  "50000\n",
				"sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000\n",
				"sys/fs/cgroup/memory/x/memory.limit_in_bytes":  "2097152\n",
			},
			500,
			2 << 20,
		},
		{
			"version 1 in a container that shows the host's path",
			map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "5:cpu:/docker/123\n4:memory:/docker/123\n",
				"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
				"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"},
			2000,
			16 << 20,
		},
		{"version 1 without a quota", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "5:cpu:/\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 4000, 16 << 20},
		{
			"a quota above the affinity",
			map[string]string{
				"proc/meminfo":          meminfo,
				"proc/self/cgroup":      "0::/\n",
				"sys/fs/cgroup/cpu.max": "6400000 100000\n",
			},
			4000,
			16 << 20,
		},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for name, text := range tt.files {
				full := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
					t.Fatal(err)
				}

				if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}

			if got := cpus(root, 4); got != tt.cpus {
				t.Errorf("cpus = %s, want %s", got, tt.cpus)
			}

			if got, err := memory(root); err != nil || got != tt.memory {
				t.Errorf("memory = %s (%v), want %s", got, err, tt.memory)
			}
		})
	}
}

func TestThisMachine(t *testing.T) {
	t.Parallel()
	fake, err := ParseFake("1xA100:80GB")
	if err != nil {
		t.Fatal(err)
	}

	for _, declared := range [][]fleet.GPU{nil, fake} {
		m := Open(Options{DataDir: t.TempDir(), Server: "https://127.0.0.1:7443", Version: "test", FakeGPUs: declared})
		found, err := m.Look(t.Context(), nil)
		if err := errors.Join(err, m.Close()); err != nil {
			t.Fatal(err)
		}

		inv := found.Inventory
		if inv.CPUs <= 0 || inv.Memory < 1<<20 || inv.Disk < 1<<20 || inv.OS == "" || inv.Kernel == "" ||
			inv.Address != "127.0.0.1" {
			t.Errorf("implausible: %+v", inv)
		}

		if declared != nil {
			if diff := cmp.Diff(declared, inv.GPUs); diff != "" {
				t.Error(diff)
			}

			continue
		}

		t.Logf("GPUs %+v, busy %v, problems %v", inv.GPUs, found.Busy, found.Problems)

		if _, err := exec.LookPath("nvidia-smi"); err == nil && len(found.Problems) == 0 && len(inv.GPUs) == 0 {
			t.Error("the driver is there and no GPU was found")
		}
	}
}
