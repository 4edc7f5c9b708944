package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"trainyard/internal/cli"
	"trainyard/internal/diskspace"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
)

// read parses args as the server command does, with these variables set.
func read(t *testing.T, variables map[string]string, args ...string) (*config, error) {
	t.Helper()
	env := cli.Env{LookupEnv: func(k string) (string, bool) {
		v, ok := variables[k]
		return v, ok
	}}

	settings := append(append([]setting{dataSetting}, serverSettings...), logSettings...)
	cmd := &cobra.Command{Use: "server"}
	register(cmd, settings)

	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}

	return readConfig(cmd, env, settings)
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "yard.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}

func TestFlagWinsOverVariableOverFileOverDefault(t *testing.T) {
	t.Parallel()
	file := write(t, "suspect_after: 11s\n")
	variable := map[string]string{"TRAINYARD_SUSPECT_AFTER": "12s"}
	tests := []struct {
		name      string
		variables map[string]string
		args      []string
		want      time.Duration
	}{
		{"default", nil, nil, 30 * time.Second},
		{"file", nil, []string{"--config", file}, 11 * time.Second},
		{"variable over file", variable, []string{"--config", file}, 12 * time.Second},
		{"flag over variable", variable, []string{"--config", file, "--suspect-after", "13s"}, 13 * time.Second},
		{"the file may be named by a variable", map[string]string{"TRAINYARD_CONFIG": file}, nil, 11 * time.Second},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := read(t, tt.variables, append(tt.args, "--data", "d")...)
			if err != nil {
				t.Fatal(err)
			}

			if c.suspectAfter != tt.want {
				t.Errorf("suspect-after = %v, want %v", c.suspectAfter, tt.want)
			}
		})
	}
}

func TestAllMistakesOfTheConfigurationAreNamedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := read(
		t,
		map[string]string{"TRAINYARD_RATE": "fast"},
		"--data",
		"d",
		"--lost-after",
		"10s",
		"--log-format",
		"xml",
		"--log-limit",
		"big",
	)

	want := `--log-limit: value must be a memory size, got "big"; write a number and a unit, e.g. 24GB or 512MB
TRAINYARD_RATE: must be a rate of at least 0, got "fast"
--log-format: must be text or json, got "xml"
lost-after: must be longer than suspect-after (30s)
report-every: must be at most half of contact-lease (8s), or a lost report stops the jobs of a node`

	if err == nil || fault.KindOf(err) != fault.Invalid {
		t.Fatalf("error = %v, want an invalid one", err)
	}

	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error(diff)
	}
}

func TestUnknownKeyInTheFileIsAMistake(t *testing.T) {
	t.Parallel()
	path := write(t, "lissten: 1\n")
	_, err := read(t, nil, "--config", path)

	want := path + `: there is no setting "lissten" (see trainyard server --help; keys are the flags with _ for -)`
	if err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
}

func TestGeneratedFilesAreCurrent(t *testing.T) {
	t.Parallel()
	env := cli.Env{LookupEnv: func(string) (string, bool) { return "", false }, Stdin: &bytes.Buffer{}}
	files, err := generated(rootCommand(env))
	if err != nil {
		t.Fatal(err)
	}

	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(name)))
		if err != nil {
			t.Error(err)
			continue
		}

		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the code makes: run make generate", name)
		}
	}
}

func TestSharedFileSystemsAreDeclaredByNamePathAndPool(t *testing.T) {
	t.Parallel()
	c, err := read(t, nil, "--shared-fs", "lab=/mnt/lab, lab=/data/lab@a100")
	if err != nil {
		t.Fatal(err)
	}

	want := fleet.SharedFolders{{Name: "lab", Path: "/mnt/lab"}, {Name: "lab", Path: "/data/lab", Pool: "a100"}}
	if diff := cmp.Diff(want, c.sharedFS); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}

	for _, bad := range []string{"/mnt/lab", "lab=mnt", "Lab=/mnt", "lab=/mnt/../x", "lab=/mnt@", "lab=/a,lab=/b"} {
		if _, err := read(t, nil, "--shared-fs", bad); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%q is read with %v", bad, err)
		}
	}
}

func TestThePasswordOfTheDatabaseComesFromAFile(t *testing.T) {
	t.Parallel()
	file := write(t, "p@ss/word\n")
	c, err := read(t, nil, "--data", "d", "--store", "postgres://yard@db.example.org/yard?sslmode=require",
		"--store-password-file", file)
	if err != nil {
		t.Fatal(err)
	}

	url, err := c.storeURL()
	if want := "postgres://yard:p%40ss%2Fword@db.example.org/yard?sslmode=require"; url != want || err != nil {
		t.Errorf("the store is %q (%v), want %q", url, err, want)
	}

	for _, args := range [][]string{
		{"--store-password-file", file},
		{"--store-password-file", file, "--store", "yard.db"},
		{"--store-password-file", filepath.Join(t.TempDir(), "none"), "--store", "postgres://yard@db/yard"},
	} {
		c, err := read(t, nil, append(args, "--data", "d")...)
		if err != nil {
			t.Fatal(err)
		}

		if url, err := c.storeURL(); err == nil {
			t.Errorf("%q: the store is %q", args, url)
		}
	}
}

func TestRecordsAreKeptForADayAtLeast(t *testing.T) {
	t.Parallel()

	for _, name := range []string{"--keep-jobs", "--keep-events", "--keep-postings"} {
		for value, good := range map[string]bool{"0s": true, "1d": true, "90d": true, "23h": false} {
			if _, err := read(t, nil, "--data", "d", name, value); (err == nil) != good {
				t.Errorf("%s %s: %v", name, value, err)
			}
		}
	}
}

func TestTheSpaceThatMustBeFreeIsASizeOrAShareOfTheDisk(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]diskspace.Floor{
		"2GB,1%": {Size: 2 << 30, Share: 0.01}, "5%": {Share: 0.05}, "512MB": {Size: 512 << 20}, "0B": {},
		" 10% , 1GB ": {Size: 1 << 30, Share: 0.1}, "0%": {},
	} {
		var c config
		if err := minFreeDisk(&c, text); err != nil || c.minFree != want {
			t.Errorf("%q is %+v: %v", text, c.minFree, err)
		}
	}

	for _, text := range []string{"", "much", "100%", "-1%", "%", "NaN%", "1%,,", "-2GB"} {
		var c config
		if err := minFreeDisk(&c, text); err == nil {
			t.Errorf("%q is %+v", text, c.minFree)
		}
	}
}
