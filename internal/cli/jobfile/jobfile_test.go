package jobfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fault"
	"trainyard/test/fuzzing"
)

func maker() Maker {
	vars := map[string]string{"SEED": "7", "HOST": "h"}
	return Maker{
		LookupEnv: func(key string) (string, bool) {
			v, ok := vars[key]
			return v, ok
		},
		Now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
	}
}

func TestAFileWithoutChangesIsHandedInAsItIs(t *testing.T) {
	t.Parallel()
	text := "run: a # comment\nworkdir: ../code\nenv: {SEED: null, X: '1'}\n"
	d, err := maker().Make([]byte(text), "jobs", Changes{})
	if err != nil {
		t.Fatal(err)
	}

	want := &Draft{Text: []byte(text), Env: map[string]string{"SEED": "7"}, Workdir: "code"}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestADeadlineIsMeantWhereThePersonIs(t *testing.T) {
	t.Parallel()
	d, err := maker().Make([]byte("run: a\ndeadline: 2026-12-01T09:00\n"), ".", Changes{})
	if err != nil {
		t.Fatal(err)
	}

	file, err := Check(d.Text, maker().Now)
	if err != nil {
		t.Fatal(err)
	}

	if want := time.Date(2026, 12, 1, 9, 0, 0, 0, time.Local); !file.Jobs[0].Spec.Deadline.Equal(want) {
		t.Errorf("the server reads %v, want %v", file.Jobs[0].Spec.Deadline, want)
	}
}

func TestBadChangesAreRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "vars")
	if err := os.WriteFile(path, []byte("A=1\n\nnonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	two, high := "name: a\nrun: a\n---\nname: b\nrun: b\n", 1000
	for name, tt := range map[string]struct {
		text string
		ch   Changes
		want string
	}{
		"a name for two":          {two, Changes{Name: "x"}, "a name can be given to one job, and this file has 2"},
		"a variable that is none": {"run: a", Changes{Env: []string{"NONE"}}, "the variable NONE is not set in your environment"},
		"a bad name of one":       {"run: a", Changes{Env: []string{"1=2"}}, "must be letters, digits"},
		"a bad file of variables": {"run: a", Changes{EnvFile: path}, "line 3, column 1: the file of variables"},
		"no file of variables":    {"run: a", Changes{EnvFile: path + "x"}, "cannot be read: no such file"},
		"a priority beyond":       {"run: a", Changes{Priority: &high}, "priority: "},
		"a required variable":     {"run: a\nenv: [NONE]", Changes{}, "line 2, column 7: env.NONE: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := maker().Make([]byte(tt.text), ".", tt.ch)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}

			if kind := fault.KindOf(err); kind != fault.Invalid && kind != fault.NotFound {
				t.Errorf("kind %s", kind)
			}
		})
	}
}

func FuzzEnvLines(f *testing.F) {
	f.Add([]byte("A=1\n# c\nexport B=\"x y\"\nC='\n"))
	f.Add(fuzzing.Long([]byte("A=\"x\n")))
	f.Fuzz(func(t *testing.T, text []byte) {
		defer fuzzing.Bounded(t)()

		into := map[string]string{}
		if err := envLines(text, "vars", into); err != nil {
			return
		}

		for key := range into {
			if strings.ContainsAny(key, "=\n") {
				t.Errorf("the name %q", key)
			}
		}
	})
}
