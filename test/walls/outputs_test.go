package walls_test

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/id"
)

// TestOutputs_LinksAreNotFollowedAndFilesHaveOneOwner has a job leave links among its output files that lead to files
// which only the agent may read: it is root, and it uploads them.
func TestOutputs_LinksAreNotFollowedAndFilesHaveOneOwner(t *testing.T) {
	t.Parallel()
	needRoot(t)
	y := newYard(t)
	y.rootAgent(t, "north", "--isolation", "users")
	alice, mallory := y.user(t, "alice"), y.user(t, "mallory")

	data := y.AgentData("north")
	secret := filepath.Join(data, "planted-secret")
	must(t, os.WriteFile(secret, []byte("GOLD of the node"), 0o600))

	j := alice.submit(t, script(
		"mkdir -p out/deep && echo 0.93 > out/accuracy && echo weights > out/deep/model",
		"ln -s deep/model out/latest",
		"ln -s /etc/passwd out/passwd; ln -s "+data+" out/agent; ln -s "+secret+" out/secret",
		"ln -s ../../../../../../../../../../../../etc/passwd out/climb; ln -s / out/root",
		"mkfifo out/pipe; echo other > unnamed; ln -s /etc/passwd stolen; ln -s "+data+" ckpt",
	)+"outputs: [\"out/**\"]\n")
	alice.ended(t, j)

	want := map[string]string{"out/accuracy": "0.93\n", "out/deep/model": "weights\n", "out/latest": "-> deep/model"}
	checkFolder(t, "the output files", alice.fetched(t, j), want)

	// What the job file does not name comes from the folder of the run, which the agent has kept by now or not.
	checkFolder(t, "other files", alice.fetched(t, j, "unnamed"), map[string]string{"unnamed": "other\n"})

	for _, pattern := range []string{"stolen", "ckpt/**", "out/agent/**", "out/secret", "out/root/etc/passwd"} {
		to := filepath.Join(t.TempDir(), "to")
		if r := alice.types(t, "fetch", string(j), pattern, "--to", to); r.code == 0 {
			t.Errorf("%s was fetched: %s\n%q", pattern, &r, contents(t, to))
		}
	}

	list := alice.types(t, "fetch", string(j), "--list")
	for _, name := range []string{"out/passwd", "out/agent", "out/secret", "out/climb", "out/root", "out/pipe"} {
		if !strings.Contains(list.err, name+" left out") {
			t.Errorf("nothing is said of %s: %s", name, &list)
		}
	}

	// Nobody else sees any of it.
	for _, args := range [][]string{{"--list"}, {}, {"unnamed"}} {
		to := filepath.Join(t.TempDir(), "to")
		r := mallory.types(t, slices.Concat([]string{"fetch", string(j), "--to", to}, args)...)
		if r.code == 0 || !strings.Contains(r.err, "job "+string(j)+" not found") || len(contents(t, to)) > 0 {
			t.Errorf("mallory fetches %q: %s", args, &r)
		}
	}

	run := string(id.NewRun(j, 1))
	for _, path := range []string{"", "/" + run + "/0", "/" + run + "/0/chunks/" + strings.Repeat("a", 64)} {
		a := mallory.call(t, http.MethodGet, "/api/v1/jobs/"+string(j)+"/outputs"+path, nil)
		if a.status != http.StatusNotFound || a.problem.Code != "job_not_found" {
			t.Errorf("mallory asks for %q: %s", path, &a)
		}
	}
}

// TestOutputs_KeptFoldersAreRemoved has jobs of another uid leave folders that are hard to remove, on a node that keeps
// little.
func TestOutputs_KeptFoldersAreRemoved(t *testing.T) {
	t.Parallel()
	needRoot(t)
	y := newYard(t)
	flags := []string{"--isolation", "users", "--max-kept-runs", "1MB"}
	y.rootAgent(t, "north", flags...)
	alice, mallory := y.user(t, "alice"), y.user(t, "mallory")

	// kept waits until exactly these runs are kept.
	kept := func(runs ...string) {
		y.await(t, "the node keeps "+strings.Join(runs, ", "), func() bool {
			entries, err := os.ReadDir(y.kept())
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}

			return slices.EqualFunc(entries, runs, func(e fs.DirEntry, run string) bool { return e.Name() == run+".0" })
		})
	}

	large := script("mkdir -p a/b", "head -c 700000 /dev/zero > a/b/zeros", "echo GOLD > secret", "umask 0; touch open",
		"ln -s /etc/passwd a/link; chmod 0 a/b/zeros a/b a")
	first := alice.submit(t, large)
	alice.ended(t, first)
	kept(string(first) + ".1")

	// It belongs to the uid of alice's jobs, and no job of another user gets to it.
	info, err := os.Stat(filepath.Join(y.kept(), string(first)+".1.0", "work"))
	must(t, err)

	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid == 0 {
		t.Errorf("the kept folder belongs to %+v", info.Sys())
	}

	if got := mallory.runs(t, "set +e; ls -R "+y.kept()+"; cat "+y.kept()+"/*/work/secret; echo over"); !strings.Contains(
		got, "over") || strings.Contains(got, "GOLD") || strings.Contains(got, "zeros") {
		t.Errorf("mallory's job reads kept folders: %s", got)
	}

	checkFolder(t, "the kept folder", alice.fetched(t, first, "secret"), map[string]string{"secret": "GOLD\n"})

	// A second one does not fit beside it.
	second := alice.submit(t, large)
	alice.ended(t, second)
	y.await(t, "the first folder is removed for the second", func() bool {
		_, old := os.Stat(filepath.Join(y.kept(), string(first)+".1.0"))
		_, young := os.Stat(filepath.Join(y.kept(), string(second)+".1.0"))

		return os.IsNotExist(old) && young == nil
	})

	// And their time passes while nothing else ends on the node.
	if code, err := y.agents["north"].Stop(patience); err != nil || code != 0 {
		t.Fatalf("the agent ended with code %d (%v)", code, err)
	}

	y.rootAgent(t, "north", append(flags, "--keep-runs", "1ms")...)
	kept()

	if info, err := os.Stat("/etc/passwd"); err != nil || info.Size() == 0 {
		t.Errorf("the file that a link led to: %v", err)
	}
}

// kept is the folder of the agent north with the working directories of ended runs.
func (y *yard) kept() string { return filepath.Join(y.AgentData("north"), "agent", "kept") }

// fetched fetches files of a job and returns what it got.
func (u *user) fetched(t *testing.T, j id.Job, patterns ...string) map[string]string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "to")
	u.must(t, slices.Concat([]string{"fetch", string(j), "--to", to}, patterns)...)

	return contents(t, to)
}

// contents returns the files below a folder, and the targets of links.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}

	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}

		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}

		if e.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			files[name] = "-> " + target

			return err
		}

		text, err := os.ReadFile(path)
		files[name] = string(text)

		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}

	return files
}

func checkFolder(t *testing.T, what string, got, want map[string]string) {
	t.Helper()

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
