package sdk

import (
	"archive/zip"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestEqualSourcesGiveEqualWheels(t *testing.T) {
	first, second := wheel(t), wheel(t)
	if !bytes.Equal(first.Data, second.Data) {
		t.Error("two wheels of the same sources differ")
	}
}

func TestTheWheelHoldsAllSources(t *testing.T) {
	onDisk, err := filepath.Glob("src/trainyard/*")
	if err != nil {
		t.Fatal(err)
	}

	want := map[string]string{}
	for _, path := range onDisk {
		if filepath.Base(path) == "__pycache__" {
			continue
		}

		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		want["trainyard/"+filepath.Base(path)] = string(text)
	}

	got := map[string]string{}
	for name, text := range unpack(t, wheel(t)) {
		if strings.HasPrefix(name, "trainyard/") {
			got[name] = text
		}
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the wheel differs from the sources (-sources +wheel):\n%s", diff)
	}
}

func TestTheWheelIsNamedByItsVersion(t *testing.T) {
	w := wheel(t)
	version, err := os.ReadFile("src/trainyard/_version.py")
	if err != nil {
		t.Fatal(err)
	}

	if !strings.Contains(string(version), `"`+w.Version+`"`) {
		t.Errorf("the wheel has version %q, _version.py is\n%s", w.Version, version)
	}

	if want := "trainyard-" + w.Version + "-py3-none-any.whl"; w.Name != want {
		t.Errorf("the wheel is named %s, want %s", w.Name, want)
	}

	info := unpack(t, w)["trainyard-"+w.Version+".dist-info/METADATA"]
	for _, line := range []string{"Name: trainyard", "Version: " + w.Version, "Requires-Python: >=3.9"} {
		if !strings.Contains(info, line+"\n") {
			t.Errorf("METADATA has no line %q", line)
		}
	}
}

func TestSourcesThatDoNotSayWhatTheyAreMakeNoWheel(t *testing.T) {
	whole := func() fstest.MapFS {
		return fstest.MapFS{
			"README.md": {Data: []byte("# readme\n")},
			"pyproject.toml": {
				Data: []byte("name = \"a\"\ndescription = \"b\"\nrequires-python = \"c\"\nlicense = \"d\"\n"),
			},
			"src/trainyard/_version.py":    {Data: []byte("__version__ = \"1\"\n")},
			"src/trainyard/__init__.py":    {Data: []byte("")},
			"src/trainyard/unrelated.data": {Data: []byte("x")},
		}
	}

	if _, err := build(whole()); err != nil {
		t.Fatalf("whole sources: %v", err)
	}

	for name, spoil := range map[string]func(fstest.MapFS){
		"no version":           func(f fstest.MapFS) { f["src/trainyard/_version.py"] = &fstest.MapFile{Data: []byte("version = 1\n")} },
		"no project":           func(f fstest.MapFS) { delete(f, "pyproject.toml") },
		"no readme":            func(f fstest.MapFS) { delete(f, "README.md") },
		"no file of a version": func(f fstest.MapFS) { delete(f, "src/trainyard/_version.py") },
	} {
		t.Run(name, func(t *testing.T) {
			files := whole()
			spoil(files)

			if w, err := build(files); err == nil {
				t.Errorf("made %s", w.Name)
			}
		})
	}
}

func TestPythonImportsTheWheelAsItIs(t *testing.T) {
	python := needPython(t)
	path := write(t, wheel(t))
	metrics := filepath.Join(t.TempDir(), "metrics.jsonl")

	cmd := exec.CommandContext(
		t.Context(),
		python,
		"-c",
		"import trainyard; trainyard.log(3, loss=0.5); print(trainyard.__file__)",
	)

	cmd.Env = append(os.Environ(), "PYTHONPATH="+path, "TRAINYARD_JOB_ID=j1", "TRAINYARD_METRICS_FILE="+metrics)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	if !strings.HasPrefix(string(out), path) {
		t.Errorf("imported from %s, want from %s", out, path)
	}

	line, err := os.ReadFile(metrics)
	if err != nil {
		t.Fatal(err)
	}

	if !strings.Contains(string(line), `"metrics":{"loss":0.5}`) {
		t.Errorf("told %s", line)
	}
}

func TestPipInstallsTheWheel(t *testing.T) {
	python := needPython(t)
	if out, err := exec.CommandContext(t.Context(), python, "-m", "pip", "--version").CombinedOutput(); err != nil {
		skip(t, "this Python has no pip: "+string(out))
	}

	into := t.TempDir()
	cmd := exec.CommandContext(
		t.Context(),
		python,
		"-m",
		"pip",
		"install",
		"--no-index",
		"--no-deps",
		"--target",
		into,
		write(t, wheel(t)),
	)

	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	if _, err := os.Stat(filepath.Join(into, "trainyard", "py.typed")); err != nil {
		t.Error(err)
	}
}

func wheel(t *testing.T) Wheel {
	t.Helper()
	w, err := Build()
	if err != nil {
		t.Fatal(err)
	}

	return w
}

func write(t *testing.T, w Wheel) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), w.Name)
	if err := os.WriteFile(path, w.Data, 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}

func unpack(t *testing.T, w Wheel) map[string]string {
	t.Helper()
	archive, err := zip.NewReader(bytes.NewReader(w.Data), int64(len(w.Data)))
	if err != nil {
		t.Fatal(err)
	}

	out := map[string]string{}

	for _, f := range archive.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}

		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}

		out[f.Name] = string(text)
	}

	return out
}

// needPython finds a Python; without one the test is skipped, but not under CI.
func needPython(t *testing.T) string {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		skip(t, "python3 is not installed")
	}

	return python
}

func skip(t *testing.T, why string) {
	t.Helper()

	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}

	t.Skip(why)
}
