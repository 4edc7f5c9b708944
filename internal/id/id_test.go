package id_test

import (
	"strings"
	"testing"

	"trainyard/internal/id"
	"trainyard/test/fuzzing"
)

func TestJobIDs(t *testing.T) {
	t.Parallel()

	for text, want := range map[id.Job]uint64{
		"j1": 1, "j1041": 1041, "j18446744073709551615": 1<<64 - 1,
		"": 0, "j": 0, "1": 0, "J1": 0, "j0": 0, "j01": 0, "j+1": 0, "j-1": 0, "j1.2": 0, "j1 ": 0, "j1_0": 0, "j18446744073709551616": 0, "jx": 0, "j١": 0,
	} {
		n, ok := text.Number()
		if n != want && ok || ok != (want > 0) {
			t.Errorf("%q is job number %d, %v; want %d", text, n, ok, want)
		}
	}
}

func TestRunIDs(t *testing.T) {
	t.Parallel()

	for text, want := range map[id.Run]int{
		"j1.1": 1, "j1041.12": 12,
		"": 0, "j1": 0, "j1.": 0, "j1.0": 0, "j1.01": 0, "j1.+1": 0, "j1.-1": 0, "j0.1": 0, ".1": 0, "j1.1.1": 0, "j1. 1": 0, "j1.99999999999999999999": 0,
	} {
		j, epoch, ok := text.Split()
		if epoch != want || ok != (want > 0) || ok && id.NewRun(j, epoch) != text {
			t.Errorf("%q is epoch %d of %q, %v; want %d", text, epoch, j, ok, want)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()

	for name, want := range map[string]bool{
		"a": true, "0": true, "gpu-box-1": true, "a_b.c": true, "a--b": true, strings.Repeat("a", 63): true,
		"": false, "-a": false, "a-": false, ".": false, "_a": false, "A": false, "a b": false, "a/b": false, "..": false, "ä": false, "a\x00": false,
		"a\n": false, strings.Repeat("a", 64): false, "a|b": false, "a:b": false,
	} {
		if got := id.Name(name); got != want {
			t.Errorf("Name(%q) = %v, want %v", name, got, want)
		}
	}
}

func FuzzIDs(f *testing.F) {
	for _, s := range []string{"j1", "j1.1", "j18446744073709551616.1", "gpu-1", "", "j+1", "j1.01"} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, s string) {
		defer fuzzing.Bounded(t)()

		if n, ok := id.Job(s).Number(); ok && string(id.NewJob(n)) != s {
			t.Errorf("%q is job %d, which is written %q", s, n, id.NewJob(n))
		}

		if j, epoch, ok := id.Run(s).Split(); ok && string(id.NewRun(j, epoch)) != s {
			t.Errorf("%q is run %d of %s, which is written %q", s, epoch, j, id.NewRun(j, epoch))
		}

		if id.Name(s) &&
			(len(s) > id.MaxName || strings.ContainsAny(s, "/\\|: \x00\n") || strings.ToLower(s) != s || s == "." || s == "..") {
			t.Errorf("%q may be a name", s)
		}
	})
}
