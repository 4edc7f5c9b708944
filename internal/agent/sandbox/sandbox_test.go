package sandbox

import (
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"trainyard/internal/fault"
)

func TestWhereAProgramSeesFiles(t *testing.T) {
	t.Parallel()
	v := View{Mounts: []Mount{
		{From: "/data/runs/j1", To: "/run/job/run"}, {From: "/data/runs/j1/work", To: "/work"}, {To: "/dev/shm"},
	}}

	for path, want := range map[string]string{
		"/data/runs/j1":        "/run/job/run",
		"/data/runs/j1/report": "/run/job/run/report",
		"/data/runs/j1/work/a": "/work/a",
		"/data/runs/j10":       "/data/runs/j10",
		"relative":             "relative",
		"":                     "",
	} {
		if got := v.Inside(path); got != want {
			t.Errorf("%q is seen as %q, want %q", path, got, want)
		}
	}
}

func TestWhichUsersJobsRunAs(t *testing.T) {
	t.Parallel()
	users, err := ParseUsers("200000-200009")
	if err != nil {
		t.Fatal(err)
	}

	got, err := users.Of("ada", 9)
	if diff := cmp.Diff(&User{Name: "ada", UID: 200009, GID: 200009}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}

	for _, number := range []int{-1, 0, 10} {
		if u, err := users.Of("ada", number); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("number %d: %v, %v", number, u, err)
		}
	}

	for _, text := range []string{"", "5", "0-10", "999-5000", "5000-4000", "5000-5000", "a-b", "-1-5",
		"1000-4294967294"} {
		if u, err := ParseUsers(text); err == nil {
			t.Errorf("%q is read as %v", text, u)
		}
	}
}

func TestNoJobRunsAsASystemAccount(t *testing.T) {
	t.Parallel()

	for _, name := range []string{"root", "daemon", "no-such-account-here"} {
		if u, err := (Users{Accounts: true}).Of(name, 1); err == nil {
			t.Errorf("%s: %v", name, u)
		}
	}

	nobody, err := user.Lookup("nobody")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs the account nobody")
		}

		t.Skip("needs the account nobody")
	}

	u, err := (Users{Accounts: true}).Of("nobody", 0)
	if err != nil || strings.TrimSpace(nobody.Uid) == "0" || u.Name != "nobody" {
		t.Errorf("nobody: %v, %v", u, err)
	}
}

func TestWhichGPUsAreClosed(t *testing.T) {
	t.Parallel()
	minors := map[string]string{"GPU-a": "0", "GPU-b": "1", "GPU-c": "10"}
	devices := func() []string { return []string{"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia10"} }

	for _, test := range []struct {
		uuids, want []string
	}{
		{nil, devices()},
		{[]string{"GPU-b"}, []string{"/dev/nvidia0", "/dev/nvidia10"}},
		{[]string{"GPU-a", "GPU-c"}, []string{"/dev/nvidia1"}},
	} {
		got, err := others(devices(), minors, test.uuids)
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("with %v: %s %v", test.uuids, diff, err)
		}
	}

	if got, err := others(devices(), minors, []string{"GPU-x"}); err == nil {
		t.Errorf("with a GPU that nobody knows: %v", got)
	}

	file := filepath.Join(t.TempDir(), "information")
	text := "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-6f9e\nDevice Minor: \t 3\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	if uuid, minor, err := readGPU(file); uuid != "GPU-6f9e" || minor != "3" || err != nil {
		t.Errorf("read %q, %q, %v", uuid, minor, err)
	}
}

func TestOwnersChangeWithoutFollowingLinks(t *testing.T) {
	t.Parallel()

	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root to run programs as other users")
		}

		t.Skip("needs root to run programs as other users")
	}

	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	inner := filepath.Join(dir, "inner")
	for _, err := range []error{
		os.Mkdir(inner, 0o700),
		os.WriteFile(filepath.Join(inner, "f"), nil, 0o700),
		os.Symlink(outside, filepath.Join(inner, "link")),
		os.Symlink(filepath.Dir(outside), filepath.Join(dir, "folder")),
		os.Mkdir(filepath.Join(dir, "skipped"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}

	u := &User{Name: "ada", UID: 310001, GID: 310002}
	if err := Own(dir, u, func(name string) bool { return name == "skipped" }); err != nil {
		t.Fatal(err)
	}

	want := map[string]int{dir: 310001, inner: 310001, inner + "/f": 310001, inner + "/link": 310001, outside: 0,
		filepath.Dir(outside): 0, dir + "/skipped": 0}
	if diff := cmp.Diff(want, owners(t, want)); diff != "" {
		t.Error("owned: " + diff)
	}

	if err := CheckOwn(dir); err == nil {
		t.Error("what belongs to another is taken for root's")
	}

	if err := Seal(inner, u); err != nil {
		t.Fatal(err)
	}

	want = map[string]int{inner: 0, inner + "/f": 0, inner + "/link": 0, outside: 0}
	if diff := cmp.Diff(want, owners(t, want)); diff != "" {
		t.Error("sealed: " + diff)
	}

	info, err := os.Stat(inner + "/f")
	if err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("a sealed file: %v, %v", info.Mode(), err)
	}
}

// owners returns who the files belong to.
func owners(t *testing.T, paths map[string]int) map[string]int {
	t.Helper()

	got := map[string]int{}
	for path := range paths {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}

		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			t.Fatal("no owner")
		}

		got[path] = int(st.Uid)
	}

	return got
}

func TestExactlyTheGivenGPUsAreInAContainer(t *testing.T) {
	t.Parallel()

	all := []string{"/dev/nvidia0", "/dev/nvidia1"}

	for _, tt := range []struct {
		inside, closed []string
		want           string
	}{
		{[]string{"/c/dev/nvidia0", "/c/dev/nvidia1"}, nil, ""},
		{[]string{"/c/dev/nvidia1"}, []string{"/dev/nvidia0"}, ""},
		{nil, all, ""},
		{nil, nil, "GPU /dev/nvidia0 is not visible in the container"},
		{[]string{"/c/dev/nvidia0"}, nil, "GPU /dev/nvidia1 is not visible in the container"},
		{[]string{"/c/dev/nvidia0"}, all, "GPU /dev/nvidia0, which belongs to another run, is visible in the container"},
	} {
		err := compareGPUs("/c", all, tt.inside, tt.closed)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)) {
			t.Errorf("with %v inside and %v closed: %v, want %q", tt.inside, tt.closed, err, tt.want)
		}
	}
}

// TestTheFirstThreadStaysWhereItIs lets so many functions have threads of their own that without care some of them
// would have the first.
func TestTheFirstThreadStaysWhereItIs(t *testing.T) {
	t.Parallel()

	var wrong atomic.Int64
	var tasks sync.WaitGroup

	for range 8 {
		tasks.Go(func() {
			for range 500 {
				onThread(func() {
					if unix.Gettid() == unix.Getpid() {
						wrong.Add(1)
					}
				})
			}
		})
	}

	tasks.Wait()

	if n := wrong.Load(); n > 0 {
		t.Errorf("%d functions ran on the first thread", n)
	}
}
