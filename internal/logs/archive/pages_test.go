package archive

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/logs"
	"trainyard/internal/pattern"
	"trainyard/test/fuzzing"
)

// matching is a pattern.
func matching(t testing.TB, text string) *pattern.Pattern {
	t.Helper()

	p, err := pattern.Compile(text)
	if err != nil {
		t.Fatal(err)
	}

	return p
}

// aligned is a log of exactly n bytes in whole frames and lines.
func aligned(t *testing.T, n int) []byte {
	t.Helper()
	line := func(length int) []byte { return output(t, "o:"+strings.Repeat("x", length)+"\n") }

	var out []byte
	for usual := line(1000); n-len(out) > 2*len(usual); {
		out = append(out, usual...)
	}

	for length := range 4000 {
		if last := line(length); len(out)+len(last) == n {
			return append(out, last...)
		}
	}

	t.Fatalf("no line fills up %d bytes", n)

	return nil
}

func TestTheTailOfALogThatEndsWithAChunk(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	data := aligned(t, chunk)
	s.append(0, string(data), false)

	at, err := s.Tail(t.Context(), theLog, &Filter{}, 3)
	if err != nil {
		t.Fatal(err)
	}

	if got := readAll(t, s, at); len(got) != 3 {
		t.Errorf("the last 3 lines are %d", len(got))
	}
}

func TestTwoOpenLinesAtTheEndOfAPage(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	first, rest := output(t, "o:1\n", "o:abc", "e:xyz"), output(t, "e:!\n", "o:def\n")
	s.append(0, string(first), false)

	lines, at, _, err := s.lines(Mark{}, &Filter{}, 2)
	if err != nil {
		t.Fatal(err)
	}

	s.append(int64(len(first)), string(rest), false)

	more, _, _, err := s.lines(at, &Filter{}, 10)
	if err != nil {
		t.Fatal(err)
	}

	got := texts(append(lines, more...))
	if got["stdout"] != "1\nabcdef\n" || got["stderr"] != "xyz!\n" {
		t.Errorf("got %q", got)
	}
}

func TestACursorThatPointsIntoAFrame(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.append(0, string(output(t, "o:hello\n", "o:world\n")), false)
	_, _, _, err := s.lines(Mark{Offset: 5}, &Filter{}, 10)
	wantFault(t, err, fault.Invalid, "bad_cursor")

	lines, _, _, err := s.lines(Mark{Offset: 1 << 40}, &Filter{}, 10)
	if err != nil || len(lines) != 0 {
		t.Errorf("past the end: %v, %v", lines, err)
	}

	damagedShelf := newShelf(t)
	damagedShelf.append(0, "this is no log\n", false)
	_, _, _, err = damagedShelf.lines(Mark{}, &Filter{}, 10)

	var d *logs.DamageError
	if !errors.As(err, &d) {
		t.Errorf("a damaged log: %v", err)
	}
}

func TestLinesAreChosen(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.append(
		0,
		string(output(t, "o:loss 0.5\nepoch 1\n", "e:warning: loss\n", "y:loss of a node", "o:\xff\xfe loss\n")),
		false,
	)

	for _, tt := range []struct {
		f    Filter
		want int
	}{
		{Filter{}, 5}, {Filter{Stream: "stdout"}, 3}, {Filter{Stream: "yard"}, 1},
		{Filter{Grep: matching(t, `loss`)}, 4}, {Filter{Grep: matching(t, `^loss`), Stream: "stdout"}, 1},
		{Filter{Grep: matching(t, `\xff`)}, 0}, {Filter{Grep: matching(t, `nothing`)}, 0},
	} {
		for most := 1; most <= 6; most++ {
			var got []api.LogLine

			for at, more := (Mark{}), true; more; {
				var lines []api.LogLine
				var err error
				lines, at, more, err = s.lines(at, &tt.f, most)
				if err != nil {
					t.Fatal(err)
				}

				got = append(got, lines...)
			}

			if len(got) != tt.want {
				t.Errorf("%+v in pages of %d: %d lines, want %d", tt.f, most, len(got), tt.want)
			}
		}
	}

	lines := readAll(t, s, Mark{})
	if last := lines[4]; string(last.Raw) != "\xff\xfe loss" || last.Text != "\uFFFD loss" || lines[0].Raw != nil {
		t.Errorf("binary is shown as %+v", last)
	}
}

func FuzzLogCursor(f *testing.F) {
	for _, s := range []string{"1", "1/0+0", "2/100+3/0+0", "1/21+0", "0/0+0", "1/-1+0", "1/+",
		"99999999999999999999", "1/9223372036854775807+9223372036854775807", "//"} {
		f.Add(s)
	}

	s := newShelf(f)
	s.append(0, string(output(f, "o:hello\nworld\n", "e:open", "o:!\n")), false)

	f.Fuzz(func(t *testing.T, text string) {
		defer fuzzing.Bounded(t)()

		c, err := ParseCursor(text)
		if err != nil {
			wantFault(t, err, fault.Invalid, "bad_cursor")
			return
		}

		again, err := ParseCursor(c.String())
		if err != nil || again.String() != c.String() {
			t.Fatalf("%q became %q and then %q, %v", text, c.String(), again.String(), err)
		}

		for _, at := range c.Ranks {
			lines, _, _, err := s.lines(at, &Filter{}, 10)
			if err != nil {
				wantFault(t, err, fault.Invalid, "bad_cursor")
			}

			if len(lines) > 4 {
				t.Fatalf("%q gave %d lines", text, len(lines))
			}
		}
	})
}

// newcomer 10: --grep and --tail printed all states of a progress bar.
func TestTheLastStateOfAProgressBarIsFound(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	bar := strings.Repeat("\r12% loss=0.9", 200_000) // longer than what is looked at in one go
	s.append(0, string(output(t, "o:begin\n")), false)

	at := int64(len(output(t, "o:begin\n")))
	for part := range slices.Chunk([]byte(bar+"\r100% loss=0.1\nend\n"), logs.MaxFrame) {
		frame := output(t, "o:"+string(part))
		s.append(at, string(frame), false)
		at += int64(len(frame))
	}

	for pattern, want := range map[string][]string{
		"loss=0.1": {"100% loss=0.1"}, "^100%": {"100% loss=0.1"}, "begin|end": {"begin", "end"},
	} {
		f := Filter{Grep: matching(t, pattern), Collapse: true}
		var got []string

		for at, more := (Mark{}), true; more; {
			var lines []api.LogLine
			var err error
			lines, at, more, err = s.lines(at, &f, 10)
			if err != nil {
				t.Fatal(err)
			}

			for i := range lines {
				got = append(got, string(logs.LastState(lines[i].Bytes())))
			}
		}

		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", pattern, diff)
		}
	}
}

func TestLinesAreChosenByTime(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.append(0, string(output(t, "o:a\n", "o:b", "e:c\n", "o:d\n")), false)

	lines, _, _, err := s.lines(Mark{}, &Filter{}, 10)
	if err != nil || len(lines) != 3 {
		t.Fatalf("%+v (%v)", lines, err)
	}

	c, bd := lines[1].At, lines[2].At // b began before c and ended after it
	for name, tt := range map[string]struct {
		f    Filter
		want int
	}{
		"since c":          {Filter{Since: c}, 1},
		"since b":          {Filter{Since: bd}, 2},
		"until b":          {Filter{Until: bd}, 1},
		"between":          {Filter{Since: bd, Until: c}, 1},
		"after everything": {Filter{Since: c.Add(time.Hour)}, 0},
	} {
		if got, _, _, err := s.lines(Mark{}, &tt.f, 10); err != nil || len(got) != tt.want {
			t.Errorf("%s: %d lines (%v), want %d", name, len(got), err, tt.want)
		}
	}
}
