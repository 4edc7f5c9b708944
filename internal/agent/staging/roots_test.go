package staging_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/staging"
	"trainyard/internal/job"
)

// refuses checks that a dataset cannot be staged, and why.
func refuses(t *testing.T, opt staging.Options, ref job.DataRef, want string) {
	t.Helper()
	ref.Name = "loot"

	vars, err := open(t, opt).Stage(t.Context(), "j1.1.0", []job.DataRef{ref})
	if err == nil {
		t.Fatalf("%+v was staged: %v", ref, vars)
	}

	if !strings.Contains(err.Error(), want) {
		t.Errorf("%+v: %v, want %q", ref, err, want)
	}
}

// everyWay returns the ways in which a dataset can name a path.
func everyWay(path string) map[string]job.DataRef {
	return map[string]job.DataRef{
		"read in place":     {Source: path},
		"copied":            {Source: "file://" + path},
		"a registered copy": {Path: path},
	}
}

// The agent may read what the users whose datasets it stages may not.
func TestOnlyWhatLiesBelowARootIsRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "root", "ok"), []byte("ok"))
	write(t, filepath.Join(dir, "root2", "secret"), []byte("secret"))
	write(t, filepath.Join(dir, "secret"), []byte("secret"))

	for link, target := range map[string]string{
		"climbs": "../secret", "absolute": filepath.Join(dir, "secret"), "magic": "/proc/self/root" + dir + "/secret",
		"inside": filepath.Join(dir, "root", "ok"), "folder": "..",
	} {
		if err := os.Symlink(target, filepath.Join(dir, "root", link)); err != nil {
			t.Fatal(err)
		}
	}

	const notBelow, out = "is not below a data root of this node", "leads out of the data roots of this node"

	for path, want := range map[string]string{
		dir + "/secret":              notBelow,
		dir + "/root2/secret":        notBelow, // whose name only begins with that of the root
		dir:                          notBelow,
		"/etc/passwd":                notBelow,
		dir + "/root/../secret":      notBelow,
		dir + "/root/climbs":         out,
		dir + "/root/absolute":       out,
		dir + "/root/magic":          out,
		dir + "/root/folder/secret":  out,
		dir + "/root/folder/root2/x": out,
	} {
		for way, ref := range everyWay(path) {
			t.Run(way+" "+strings.TrimPrefix(path, dir), func(t *testing.T) {
				t.Parallel()
				opt := options(t)
				opt.Roots = []string{filepath.Join(dir, "root")}

				refuses(t, opt, ref, want)
			})
		}
	}

	for _, name := range []string{"ok", "inside"} {
		for way, ref := range everyWay(filepath.Join(dir, "root", name)) {
			opt := options(t)
			opt.Roots = []string{filepath.Join(dir, "root")}
			ref.Name = "data"
			vars, err := open(t, opt).Stage(t.Context(), "j1.1.0", []job.DataRef{ref})
			if err != nil {
				t.Errorf("%s, %s: %v", name, way, err)
				continue
			}

			has(t, vars["TRAINYARD_DATA_DATA"], []byte("ok"))
		}
	}
}

func TestWithoutRootsNothingIsReadFromTheFileSystem(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "data")
	write(t, file, []byte("data"))

	for _, ref := range everyWay(file) {
		opt := options(t)
		opt.Roots = nil
		refuses(t, opt, ref, "this node has none; its operator lists them with --data-roots")
	}
}

// A copy that this node may not read is fetched like one that it has not got.
func TestACopyOutsideTheRootsIsFetchedInstead(t *testing.T) {
	t.Parallel()
	data := content(100)
	s := serve(t, whole(data, "v1"))
	opt := options(t)
	opt.Roots = nil
	vars := stage(t, open(t, opt), "j1.1.0", job.DataRef{Name: "mri", Path: "/etc/passwd", Source: s.URL + "/mri"})
	has(t, vars["TRAINYARD_DATA_MRI"], data)
}

// The directories of the agent hold its key, and the files of all runs.
func TestTheDirectoriesOfTheAgentAreNeverRead(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	agent := filepath.Join(root, "var", "agent")
	write(t, filepath.Join(agent, "identity", "node.pem"), []byte("PRIVATE KEY"))

	if err := os.Symlink("var/agent", filepath.Join(root, "alias")); err != nil {
		t.Fatal(err)
	}

	for _, path := range []string{
		agent, filepath.Join(agent, "identity", "node.pem"), filepath.Join(root, "alias", "identity"),
		filepath.Join(root, "var"), root,
	} {
		for _, ref := range everyWay(path) {
			opt := options(t)
			opt.Roots, opt.Private = []string{root}, []string{agent}
			refuses(t, opt, ref, "belongs to the agent of this node")
		}
	}
}

// A mount shows the agent's directory under a path that says nothing about it.
func TestTheDirectoryOfTheAgentIsRecognisedUnderAnotherPath(t *testing.T) {
	t.Parallel()

	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root to mount a directory")
		}

		t.Skip("needs root to mount a directory")
	}

	agent, root := t.TempDir(), t.TempDir()
	write(t, filepath.Join(agent, "node.pem"), []byte("PRIVATE KEY"))
	write(t, filepath.Join(root, "set", "a"), []byte("a"))
	mounted := filepath.Join(root, "set", "b")

	if err := os.Mkdir(mounted, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(agent, mounted, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := unix.Unmount(mounted, 0); err != nil {
			t.Error(err)
		}
	})

	opt := options(t)
	opt.Roots, opt.Private = []string{root}, []string{agent}
	refuses(t, opt, job.DataRef{Source: "file://" + filepath.Join(root, "set")}, "belongs to the agent of this node")
	refuses(t, opt, job.DataRef{Source: "file://" + mounted}, "belongs to the agent of this node")
}

// Services of the machine itself trust whoever can connect to them.
func TestAddressesOfThisMachineAreNotFetchedFrom(t *testing.T) {
	t.Parallel()
	secret := serve(t, whole([]byte("secret"), "v1"))
	_, port, _ := strings.Cut(strings.TrimPrefix(secret.URL, "http://"), ":")
	const want = "is an address that datasets are not fetched from"

	for _, url := range []string{
		secret.URL + "/mri", "http://localhost:" + port, "http://[::ffff:127.0.0.1]:" + port, "http://0.0.0.0:" + port,
		"http://169.254.169.254/latest/meta-data/", "http://[fe80::1]/", "http://[fd00:ec2::254]/",
		"http://100.100.100.200/", "http://[64:ff9b::a9fe:a9fe]/",
	} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			opt := options(t)
			opt.Hosts = nil

			refuses(t, opt, job.DataRef{Source: url + "?token=s3cr3t"}, want)
		})
	}

	if asked := secret.asked(); len(asked) > 0 {
		t.Errorf("it was asked: %v", asked)
	}
}

func TestARedirectToAnAddressOfThisMachineIsNotFollowed(t *testing.T) {
	t.Parallel()
	secret := serve(t, whole([]byte("secret"), "v1"))
	bad := serve(t, redirect(secret.URL))
	opt := options(t)
	opt.Hosts = []string{strings.TrimPrefix(bad.URL, "http://")}
	refuses(t, opt, job.DataRef{Source: bad.URL + "/mri"}, "is an address that datasets are not fetched from")

	if asked := secret.asked(); len(bad.asked()) != 1 || len(asked) > 0 {
		t.Errorf("it was asked: %v", asked)
	}
}

// What a run waits for is shown to its owner, who need not know how the data is got at.
func TestCredentialsOfASourceAreNotShown(t *testing.T) {
	t.Parallel()
	s := serve(t, whole([]byte("data"), "v1"))
	address := strings.TrimPrefix(s.URL, "http://")
	s.Close()

	opt := options(t)
	opt.Tries = 2
	ref := job.DataRef{Name: "mri", Source: fmt.Sprintf("http://svc:s3cr3t@%s/mri?X-Amz-Signature=abc", address)}

	_, err := open(t, opt).Stage(t.Context(), "j1.1.0", []job.DataRef{ref})
	if err == nil {
		t.Fatal("it was fetched from a server that is closed")
	}

	for _, secret := range []string{"svc", "s3cr3t", "abc"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%v contains %s", err, secret)
		}
	}
}
