package doctor_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trainyard/internal/agent/doctor"
	"trainyard/internal/agent/metadata"
	"trainyard/internal/agent/sandbox"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

// machine is one in perfect order: an agent that is root and runs jobs as users of their own.
func machine(t *testing.T) *doctor.System {
	t.Helper()
	root, data := t.TempDir(), filepath.Join(t.TempDir(), "data")

	for path, text := range map[string]string{
		"/proc/self/ns/pid": "", "/proc/self/ns/mnt": "", "/proc/self/ns/ipc": "",
		"/proc/sys/kernel/seccomp/actions_avail": "",
		"/etc/passwd":                            "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n",
		"/etc/subuid":                            "ada:100000:65536\n",
		"/bin/bash":                              "", "/bin/sh": "",
	} {
		write(t, filepath.Join(root, path), text, 0o644)
	}

	for _, path := range []string{"agent/identity/node.pem", "yard.db", "ca/ca.pem"} {
		write(t, filepath.Join(data, path), "", 0o600)
	}

	return &doctor.System{
		Root: root, Data: data, Isolated: true, Jobs: sandbox.Users{First: 200000, Last: 265535},
		Limits:   func() string { return "cgroup v2" },
		Metadata: func(int) (metadata.Reach, error) { return metadata.Blocked, nil },
		Free:     func(string) (job.Bytes, job.Bytes, error) { return 1 << 40, 2 << 40, nil },
		Synced:   func() (bool, error) { return true, nil },
		Server:   func(context.Context) (string, time.Duration, error) { return "https://yard:7443", time.Second, nil },
		GPUs: func(context.Context) ([]fleet.GPU, error) {
			return []fleet.GPU{{Model: "NVIDIA H200", Memory: 141 << 30}}, nil
		},
	}
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()

	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func TestAMachineInOrderHasNothingToSay(t *testing.T) {
	t.Parallel()
	list := doctor.Examine(t.Context(), machine(t))

	for _, f := range list {
		if f.Level != doctor.OK || f.Detail == "" || f.Remedy != "" {
			t.Errorf("%+v", f)
		}
	}

	if doctor.Worst(list) != doctor.OK || len(list) < 10 {
		t.Errorf("%d findings, the worst %s", len(list), doctor.Worst(list))
	}
}

func TestEachDefectIsFoundWithARemedy(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		change func(s *doctor.System)
		check  string
		level  doctor.Level
		detail string
	}{
		"not root": {
			func(s *doctor.System) { s.UID, s.Isolated = 1000, false },
			"isolation", doctor.Warn, "under user id 1000, that of the agent",
		},
		"isolation that cannot be": {
			func(s *doctor.System) { s.UID = 1000 }, "isolation", doctor.Fail, "is not root",
		},
		"root without isolation": {
			func(s *doctor.System) { s.Isolated = false }, "isolation", doctor.Warn, "jobs run as root",
		},
		"users mixed": {
			func(s *doctor.System) { s.UID, s.Isolated, s.MixUsers = 1000, false, true },
			"isolation", doctor.Warn, "at the same time",
		},
		"no pid namespaces": {
			func(s *doctor.System) { remove(s, "/proc/self/ns/pid") }, "namespaces", doctor.Fail, "no pid namespaces",
		},
		"no bash":  {func(s *doctor.System) { remove(s, "/bin/bash") }, "shell", doctor.Warn, "/bin/sh runs the commands"},
		"no shell": {func(s *doctor.System) { remove(s, "/bin/bash"); remove(s, "/bin/sh") }, "shell", doctor.Fail, "no job can run"},
		"a driver that does not answer": {
			func(s *doctor.System) {
				s.GPUs = func(context.Context) ([]fleet.GPU, error) { return nil, errors.New("nvidia-smi: version mismatch") }
			},
			"GPUs", doctor.Fail, "version mismatch",
		},
		"a broken GPU": {
			func(s *doctor.System) {
				s.GPUs = func(context.Context) ([]fleet.GPU, error) {
					return []fleet.GPU{{Index: 0}, {Index: 1, Error: "fell off the bus"}}, nil
				}
			},
			"GPUs", doctor.Warn, "1 of 2 cannot be used: GPU 1: fell off the bus",
		},
		"no seccomp": {
			func(s *doctor.System) { remove(s, "/proc/sys/kernel/seccomp/actions_avail") },
			"seccomp", doctor.Warn, "cannot filter",
		},
		"no limits": {
			func(s *doctor.System) { s.Limits = func() string { return "none: not root" } },
			"cgroups", doctor.Warn, "not enforced: none: not root",
		},
		"an account in the range": {
			func(s *doctor.System) { add(s, "/etc/passwd", "svc:x:200017:1::/:/bin/sh\n") },
			"user ids", doctor.Fail, "user svc (/etc/passwd)",
		},
		"subordinate ids in the range": {
			func(s *doctor.System) { add(s, "/etc/subuid", "ben:165536:65536\n") },
			"user ids", doctor.Fail, "subordinate user ids of ben (/etc/subuid)",
		},
		"metadata in a cloud": {
			func(s *doctor.System) {
				add(s, "/sys/class/dmi/id/sys_vendor", "Amazon EC2\n")
				s.Metadata = func(user int) (metadata.Reach, error) {
					if user != 200001 {
						return metadata.Blocked, nil
					}

					return metadata.Open, nil
				}
			},
			"metadata", doctor.Warn, "can read the credentials",
		},
		"metadata for accounts": {
			func(s *doctor.System) {
				add(s, "/sys/class/dmi/id/sys_vendor", "Amazon EC2\n")
				s.Jobs.Accounts = true
				s.Metadata = func(int) (metadata.Reach, error) { return metadata.Open, nil }
			},
			"metadata", doctor.Warn, "can read the credentials",
		},
		"a key that all can read": {
			func(s *doctor.System) { chmod(s, "ca/ca.pem", 0o644) }, "files", doctor.Fail,
			"the key of the yard's CA and has mode 0644",
		},
		"a folder that all can list": {
			func(s *doctor.System) { chmod(s, "agent", 0o755) }, "files", doctor.Fail, "the agent's data and has mode 0755",
		},
		"server and jobs as one user": {
			func(s *doctor.System) { s.UID, s.Isolated = 1000, false },
			"server", doctor.Warn, "keeps its files in",
		},
		"server of the same user": {
			func(s *doctor.System) {
				s.UID, s.Isolated = os.Geteuid(), false
				_ = os.RemoveAll(filepath.Join(s.Data, "ca"))
				_ = os.Remove(filepath.Join(s.Data, "yard.db"))
				add(s, "/proc/17/cmdline", "/usr/bin/trainyard\x00server\x00--data\x00x")
			},
			"server", doctor.Warn, "a server runs as the same user (process 17",
		},
		"a full disk": {
			func(s *doctor.System) {
				s.Free = func(string) (job.Bytes, job.Bytes, error) { return 1 << 20, 1 << 40, nil }
			},
			"disk", doctor.Fail, "takes no jobs",
		},
		"a clock by itself": {
			func(s *doctor.System) { s.Synced = func() (bool, error) { return false, nil } },
			"clock", doctor.Warn, "not synchronised",
		},
		"no server": {
			func(s *doctor.System) {
				s.Server = func(context.Context) (string, time.Duration, error) {
					return "https://yard:7443", 0, errors.New("connection refused")
				}
			},
			"connection", doctor.Fail, "cannot reach https://yard:7443: connection refused",
		},
		"a server of another time": {
			func(s *doctor.System) {
				s.Server = func(context.Context) (string, time.Duration, error) { return "https://yard:7443", -time.Minute, nil }
			},
			"connection", doctor.Warn, "its clock is 1m behind",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := machine(t)
			tt.change(s)

			for _, f := range doctor.Examine(t.Context(), s) {
				if f.Check == tt.check && f.Level == tt.level && strings.Contains(f.Detail, tt.detail) && f.Remedy != "" {
					return
				}
			}

			t.Errorf("not found: %s %s %q in %+v", tt.level, tt.check, tt.detail, doctor.Examine(t.Context(), s))
		})
	}
}

func remove(s *doctor.System, path string) { _ = os.Remove(filepath.Join(s.Root, path)) }

func chmod(s *doctor.System, path string, mode os.FileMode) {
	_ = os.Chmod(filepath.Join(s.Data, path), mode)
}

// add adds a line to a file of the system.
func add(s *doctor.System, path, line string) {
	path = filepath.Join(s.Root, path)
	text, _ := os.ReadFile(path)
	_ = os.MkdirAll(filepath.Dir(path), 0o700)
	_ = os.WriteFile(path, append(text, line...), 0o600)
}

func TestItSaysWhetherGPUsCanBeShared(t *testing.T) {
	t.Parallel()

	for version, want := range map[string]string{"": "cannot be shared", "1a2b3c": "can be shared by jobs (library 1a2b3c)"} {
		m := machine(t)
		m.Sharing = version
		found := false

		for _, f := range doctor.Examine(t.Context(), m) {
			found = found || f.Check == "GPUs" && f.Level == doctor.OK && strings.Contains(f.Detail, want)
		}

		if !found {
			t.Errorf("with the library %q nothing says %q", version, want)
		}
	}
}
