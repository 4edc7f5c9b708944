package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLimitsOfTheNewKindOfCgroup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	names := []string{"memory.max", "memory.swap.max", "memory.oom.group", "cpu.weight", "io.weight", "pids.max"}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.WriteFile(filepath.Join(dir, "memory.events"), []byte("low 0\noom 3\noom_kill 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	g := &Group{V2: true, Memory: dir}
	if err := g.limitV2(Limits{Memory: 4 << 30, CPUs: 1500, PIDs: 99}); err != nil {
		t.Fatal(err)
	}

	got := map[string]string{}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}

		got[name] = string(data)
	}

	want := map[string]string{
		"memory.max":       "4294967296",
		"memory.swap.max":  "0",
		"memory.oom.group": "1",
		"cpu.weight":       "150",
		"io.weight":        "150",
		"pids.max":         "99",
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	if n := g.OOMKills(); n != 2 {
		t.Errorf("kills = %d", n)
	}

	if err := (&Group{V2: true, Memory: filepath.Join(dir, "none")}).limitV2(Limits{Memory: 1, CPUs: 1}); err == nil {
		t.Error("limits of a cgroup that is not there were set")
	}
}

func TestWhereCgroupsAre(t *testing.T) {
	t.Parallel()
	const hybrid = `25 1 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw
30 25 0:26 / /sys/fs/cgroup/memory rw shared:5 - cgroup cgroup rw,memory
31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 25 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
34 25 0:30 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio
32 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
`

	const container = "30 25 0:26 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
	tests := []struct {
		name, mounts, own string
		want              mounted
	}{
		{"both kinds", hybrid, "4:memory:/agents/a\n2:cpu,cpuacct:/\n3:pids:/p\n0::/x\n",
			mounted{v2: "/sys/fs/cgroup/unified", memory: "/sys/fs/cgroup/memory/agents/a", cpu: "/sys/fs/cgroup/cpu,cpuacct",
				pids: "/sys/fs/cgroup/pids/p", io: "/sys/fs/cgroup/blkio"}},
		{"in a container", container, "4:memory:/docker/abc\n", mounted{memory: "/sys/fs/cgroup/memory"}},
		{"none", "1 0 8:1 / / rw - ext4 /dev/sda rw\nodd line\n", "", mounted{}},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			if got := parseMounts(tt.mounts, tt.own); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}
