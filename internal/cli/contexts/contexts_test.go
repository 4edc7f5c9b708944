package contexts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"trainyard/internal/fault"
)

func TestTheFileIsKeptForItsOwnerAlone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "trainyard")
	f, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}

	f.Put(Context{Name: "b", Server: "https://b:1", Token: "ty_b", CA: "-----BEGIN\nx\n"})
	f.Put(Context{Name: "a", Server: "https://a:1", Token: "old"})
	f.Put(Context{Name: "a", Server: "https://a:1", Token: "new"})

	if err := f.Save(); err != nil {
		t.Fatal(err)
	}

	back, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(
		f,
		back,
		cmpopts.IgnoreUnexported(File{}),
	); diff != "" || back.Current != "a" ||
		len(back.Contexts) != 2 {
		t.Errorf("(-saved +loaded):\n%s", diff)
	}

	for path, want := range map[string]os.FileMode{f.Path(): 0o600, dir: 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v (%v), want %v", path, info.Mode(), err, want)
		}
	}

	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v (%v)", entries, err)
	}

	if back.Exposed() {
		t.Error("a file of mode 0600 counts as exposed")
	}

	// A file that others could read is closed by the next save.
	if err := os.Chmod(f.Path(), 0o644); err != nil {
		t.Fatal(err)
	}

	if !back.Exposed() {
		t.Error("a file of mode 0644 does not count as exposed")
	}

	if err := back.Save(); err != nil || back.Exposed() {
		t.Errorf("still exposed after a save (%v)", err)
	}
}

func TestLookingUpAndRemoving(t *testing.T) {
	t.Parallel()
	f := &File{}
	f.Put(Context{Name: "one", Server: "https://x:1"})
	f.Put(Context{Name: "two", Server: "https://x:1"})

	if c, _ := f.ByServer("https://x:1"); c.Name != "two" {
		t.Errorf("got %s, want the current one", c.Name)
	}

	f.Remove("two")

	if _, ok := f.Get(""); ok {
		t.Error("a removed context is still current")
	}

	if c, ok := f.ByServer("https://x:1"); !ok || c.Name != "one" {
		t.Errorf("got %v, %v", c, ok)
	}

	if _, ok := f.ByServer("https://y:1"); ok {
		t.Error("found a context of a server that has none")
	}
}

func TestABrokenFileIsToldWithoutItsSecrets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, fileName), []byte("contexts: ty_secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	_, err := Load(dir)
	if fault.KindOf(err) != fault.Invalid || strings.Contains(err.Error(), "ty_secret") {
		t.Errorf("got %v", err)
	}

	if err := os.WriteFile(filepath.Join(dir, fileName), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	if f, err := Load(dir); err != nil || len(f.Contexts) != 0 {
		t.Errorf("an empty file: %v, %v", f, err)
	}
}

func TestServerAddresses(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"yard": "https://yard:7443", "yard:1": "https://yard:1", "https://yard": "https://yard:7443", "https://yard:8443/": "https://yard:8443",
		"[::1]:7443": "https://[::1]:7443", "http://yard": "", "https://": "", "https://a/b": "", "https://u:p@a": "", "": "", "ftp://x": "",
	} {
		if got, err := ServerURL(text); got != want || (err == nil) != (want != "") {
			t.Errorf("ServerURL(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
}
