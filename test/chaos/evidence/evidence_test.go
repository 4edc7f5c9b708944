package evidence

import (
	"strings"
	"testing"
	"time"
)

func TestOverlaps(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name   string
		text   string
		want   int
		length time.Duration
	}{
		{name: "one after the other", text: `
			100000000 start a j1.1 h1 10 0
			200000000 tick a j1.1 h1 10 1
			300000000 start a j1.2 h2 11 0
			400000000 end a j1.2 h2 11 0`},
		{name: "two jobs at once", text: `
			100000000 start a j1.1 h1 10 0
			200000000 start b j2.1 h1 11 0
			300000000 end a j1.1 h1 10 0
			400000000 end b j2.1 h1 11 0`},
		{name: "one job twice", want: 1, length: 200 * time.Millisecond, text: `
			100000000 start a j1.1 h1 10 0
			200000000 start a j1.2 h2 11 0
			300000000 tick a j1.1 h1 10 1
			400000000 tick a j1.1 h1 10 2
			500000000 end a j1.2 h2 11 0`},
		{name: "one run on two machines", want: 1, length: 100 * time.Millisecond, text: `
			100000000 start a j1.1 h1 10 0
			200000000 start a j1.1 h2 10 0
			300000000 tick a j1.1 h1 10 1`},
		{name: "frozen, and a moment of work afterwards", want: 1, length: 100 * time.Millisecond, text: `
			100000000 start a j1.1 h1 10 0
			200000000 start a j1.2 h2 11 0
			30000000000 tick a j1.1 h1 10 1
			30100000000 term a j1.1 h1 10 1
			31000000000 end a j1.2 h2 11 0`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			all, err := parse(strings.NewReader(strings.ReplaceAll(strings.TrimSpace(c.text), "\t", "")))
			if err != nil {
				t.Fatal(err)
			}

			found := Overlaps(all)
			if len(found) != c.want || c.want > 0 && found[0].Length != c.length {
				t.Errorf("found %v, want %d of %s", found, c.want, c.length)
			}
		})
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	w, err := NewWriter(dir, "a", "j1.1", "10.0.0.1")
	if err != nil {
		t.Fatal(err)
	}

	for n, what := range []string{Start, Tick, Term} {
		if err := w.Note(what, n); err != nil {
			t.Fatal(err)
		}
	}

	all, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}

	if len(all) != 1 || all[0].Run != "j1.1" || all[0].Lines != 2 || !all[0].Over() || all[0].Last < all[0].Begun {
		t.Errorf("read %+v", all)
	}
}
