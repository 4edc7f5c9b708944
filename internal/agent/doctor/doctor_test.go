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
	"trainyard/internal/job"
)

// machine is one in perfect order: an agent with a user of its own, and no server.
func machine(t *testing.T) *doctor.System {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	write(t, filepath.Join(data, "agent/identity/node.pem"), "", 0o600)

	return &doctor.System{
		Root: t.TempDir(), Data: data, UID: 1000,
		Limits: func() string { return "cgroup v2" },
		Free:   func(string) (job.Bytes, job.Bytes, error) { return 1 << 40, 2 << 40, nil },
		Synced: func() (bool, error) { return true, nil },
		Server: func(context.Context) (string, time.Duration, error) { return "https://yard:7443", time.Second, nil },
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

	if doctor.Worst(list) != doctor.OK || len(list) < 7 {
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
		"root": {
			func(s *doctor.System) { s.UID = 0 }, "isolation", doctor.Warn, "jobs run as root",
		},
		"users mixed": {
			func(s *doctor.System) { s.MixUsers = true }, "isolation", doctor.Warn, "at the same time",
		},
		"no limits": {
			func(s *doctor.System) { s.Limits = func() string { return "none: not root" } },
			"cgroups", doctor.Warn, "not enforced: none: not root",
		},
		"a key that all can read": {
			func(s *doctor.System) { chmod(s, "agent/identity/node.pem", 0o644) },
			"files", doctor.Fail, "the node's key and has mode 0644",
		},
		"a folder that all can list": {
			func(s *doctor.System) { chmod(s, "agent", 0o755) }, "files", doctor.Fail, "the agent's data and has mode 0755",
		},
		"server and jobs as one user": {
			func(s *doctor.System) { _ = os.Mkdir(filepath.Join(s.Data, "ca"), 0o700) },
			"server", doctor.Warn, "keeps its files in",
		},
		"server of the same user": {
			func(s *doctor.System) {
				s.UID = os.Geteuid()
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
