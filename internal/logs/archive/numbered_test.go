package archive

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/logs"
)

// longLog is the output of a program with n lines of various lengths on both streams, and what its lines are.
func longLog(t *testing.T, n int) (data []byte, lines []string) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	var frames []string

	for i := range n {
		text := fmt.Sprintf("line %d %s", i+1, strings.Repeat("x", random.IntN(400)))
		lines = append(lines, text)

		stream := []string{"o:", "e:"}[random.IntN(2)]
		if half := len(text) / 2; random.IntN(3) == 0 {
			frames = append(frames, stream+text[:half], stream+text[half:]+"\n")
		} else {
			frames = append(frames, stream+"10 %\r20 %\r"+text+"\n") // a progress bar counts once
		}
	}

	return output(t, frames...), lines
}

// numbered asks for a range with no bound on work.
func numbered(t *testing.T, s *shelf, r Range, f Filter) Numbered {
	t.Helper()

	got, err := s.Numbered(t.Context(), theLog, r, &f)
	if err != nil {
		t.Fatal(err)
	}

	return got
}

// wantLines compares lines with those of a log, by their numbers.
func wantLines(t *testing.T, got []api.LogLine, all []string, numbers ...int64) {
	t.Helper()

	var have, want []string
	for _, l := range got {
		have = append(have, fmt.Sprintf("%d %s", l.Number, l.Text))
	}

	for _, n := range numbers {
		want = append(want, fmt.Sprintf("%d %s", n, all[n-1]))
	}

	if diff := cmp.Diff(want, have); diff != "" {
		t.Fatalf("lines differ (-want +got):\n%s", diff)
	}
}

func from(first, count int64) (numbers []int64) {
	for n := first; n < first+count; n++ {
		numbers = append(numbers, n)
	}

	return numbers
}

func TestLinesAreFoundByTheirNumbers(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	data, lines := longLog(t, 12_000)
	total := int64(len(lines))

	if len(data) < 2*chunk {
		t.Fatalf("%d bytes are not enough to have several pieces", len(data))
	}

	look := func(t *testing.T) {
		t.Helper()

		for _, first := range []int64{1, 2, 4000, 5999, total - 10} {
			got := numbered(t, s, Range{From: first, Limit: 10}, Filter{})
			wantLines(t, got.Lines, lines, from(first, 10)...)

			if got.Total != total || got.Size != int64(len(data)) || got.Counted != got.Size || got.Next != first+10 {
				t.Errorf("got %d lines, %d of %d bytes counted, next %d", got.Total, got.Counted, got.Size, got.Next)
			}

			back := numbered(t, s, Range{From: first + 10, Backward: true, Limit: 10}, Filter{})
			wantLines(t, back.Lines, lines, from(first, 10)...)
		}

		last := numbered(t, s, Range{From: -3, Limit: 10}, Filter{})
		wantLines(t, last.Lines, lines, from(total-2, 3)...)

		if last.Next != 0 {
			t.Errorf("after the last line comes %d", last.Next)
		}
	}

	half := len(data) / 2
	s.append(0, string(data[:half]), false)

	if got := numbered(t, s, Range{From: 1, Limit: 1}, Filter{}); got.Total < 1 || got.Total >= total {
		t.Fatalf("%d of %d lines are in the first half", got.Total, total)
	}

	s.append(int64(half), string(data[half:]), false)
	look(t)
	s.append(int64(len(data)), "", true)
	look(t)
}

// A program that writes through a pipe fills frames, which end in the middle of lines.
func TestLinesHaveNumbersWhereverFramesEnd(t *testing.T) {
	t.Parallel()

	for _, long := range []int{10, 70_000, 1_200_000} { // one line of this length is among them
		s := newShelf(t)
		var lines []string
		for i := range 250_000 {
			lines = append(lines, fmt.Sprintf("step %d", i+1))
		}

		lines[1000] = strings.Repeat("y", long)
		pieces := int64(max(1, (long+logs.MaxLine-1)/logs.MaxLine))
		text := strings.Join(lines, "\n") + "\n"
		var frames []string
		for len(text) > 0 {
			n := min(60_001, len(text))
			frames = append(frames, "o:"+text[:n], "e:")
			text = text[n:]
		}

		data := output(t, frames...)
		s.append(0, string(data), true)

		got := numbered(t, s, Range{From: -1, Limit: 10}, Filter{})
		if want := int64(len(lines)) + pieces - 1; got.Total < want || got.Total > want+2 || long == 10 && got.Total != want {
			t.Errorf("with a line of %d bytes %d lines are counted, want %d", long, got.Total, want)
		}

		// However the long line was divided, all lines are there once, in order.
		var all strings.Builder
		for from := int64(1); from > 0; {
			got := numbered(t, s, Range{From: from, Limit: 9_999}, Filter{})
			for i, l := range got.Lines {
				if l.Number != from+int64(i) {
					t.Fatalf("line %d comes after %d others from %d on", l.Number, i, from)
				}

				all.WriteString(l.Text)

				if !l.Partial {
					all.WriteString("\n")
				}
			}

			from = got.Next
		}

		if all.String() != strings.Join(lines, "\n")+"\n" {
			t.Errorf("with a line of %d bytes the lines are not those that were printed", long)
		}
	}
}

func TestLinesAreSearchedInBothDirections(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	data, lines := longLog(t, 12_000)
	s.append(0, string(data), true)

	f := Filter{Grep: matching(t, `^line \d+000 `)}
	got := numbered(t, s, Range{From: 1500, Limit: 3}, f)
	wantLines(t, got.Lines, lines, 2000, 3000, 4000)

	got = numbered(t, s, Range{From: got.Next, Limit: 100}, f)
	wantLines(t, got.Lines, lines, 5000, 6000, 7000, 8000, 9000, 10000, 11000, 12000)

	got = numbered(t, s, Range{Backward: true, Limit: 2}, f)
	wantLines(t, got.Lines, lines, 11000, 12000)

	got = numbered(t, s, Range{From: got.Next, Backward: true, Limit: 100}, f)
	wantLines(t, got.Lines, lines, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000)
}

func TestABudgetBoundsCountingAndSearching(t *testing.T) {
	t.Parallel()

	for _, backward := range []bool{false, true} {
		s := newShelf(t)
		data, lines := longLog(t, 12_000)
		s.append(0, string(data), true)

		expression := matching(t, `^line (5|6)000 x*`)
		r := Range{Backward: backward, Limit: 10}
		var found []api.LogLine
		requests := 0

		for ; requests < 1000; requests++ {
			got, err := s.Numbered(t.Context(), theLog, r, &Filter{
				Grep: expression, Budget: NewBudget(2*chunk, func() bool { return false }),
			})
			if err != nil {
				t.Fatal(err)
			}

			if got.Counted < got.Size {
				continue
			}

			found = append(found, got.Lines...)
			if got.Next == 0 {
				break
			}

			r.From = got.Next
		}

		if requests < 5 {
			t.Errorf("%d requests had a budget for all", requests)
		}

		if backward {
			wantLines(t, found, lines, 6000, 5000)
		} else {
			wantLines(t, found, lines, 5000, 6000)
		}
	}
}

func TestLinesThatHaveNoEndYetComeLast(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	data := output(t, "o:one\n", "o:tw", "e:er")
	s.append(0, string(data), false)

	got := numbered(t, s, Range{From: 1, Limit: 10}, Filter{})
	wantLines(t, got.Lines, []string{"one", "tw", "er"}, 1, 2, 3)

	if !got.Lines[1].Partial || got.Total != 3 {
		t.Errorf("got %+v", got)
	}

	s.append(int64(len(data)), string(output(t, "o:o\n", "e:r\n")), false)
	got = numbered(t, s, Range{From: 1, Limit: 10}, Filter{})
	wantLines(t, got.Lines, []string{"one", "two", "err"}, 1, 2, 3)
}

func TestLongLinesAreCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.append(0, string(output(t, "o:"+strings.Repeat("é", 50)+"\n", "o:short\n")), true)

	got := numbered(t, s, Range{From: 1, Limit: 10, Cut: 11}, Filter{})
	if l := got.Lines[0]; l.Text != strings.Repeat("é", 5) || l.Raw != nil || l.Length != 100 {
		t.Errorf("got %q, raw %q, of %d bytes", l.Text, l.Raw, l.Length)
	}

	if l := got.Lines[1]; l.Text != "short" || l.Length != 0 {
		t.Errorf("got %q of %d bytes", l.Text, l.Length)
	}

	// A page ends when it has enough text.
	got = numbered(t, s, Range{From: 1, Limit: 10, Bytes: 50}, Filter{})
	if len(got.Lines) != 1 || got.Next != 2 {
		t.Errorf("got %d lines, next %d", len(got.Lines), got.Next)
	}
}

func TestTheIndexOfARemovedLogIsForgotten(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	data, _ := longLog(t, 12_000)
	s.append(0, string(data), true)
	numbered(t, s, Range{From: 1, Limit: 1}, Filter{})

	if _, err := s.Remove(t.Context(), theLog); err != nil {
		t.Fatal(err)
	}

	if got := numbered(t, s, Range{From: 1, Limit: 10}, Filter{}); got.Total != 0 || len(got.Lines) != 0 {
		t.Errorf("%d lines are left", got.Total)
	}
}

func TestOutputIsCopiedAsText(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.append(0, string(output(t, "o:5 %\r10 %\n", "e:bad\n", "y:the node is lost", "o:open")), true)

	for _, lines := range []int{0, 12_000} {
		want := "5 %\r10 %\nbad\n[yard] the node is lost\nopen"
		if lines > 0 {
			s = newShelf(t)
			data, texts := longLog(t, lines)
			s.append(0, string(data), true)
			want = strings.Join(texts, "\n") + "\n"
		}

		st, err := s.State(t.Context(), theLog)
		if err != nil {
			t.Fatal(err)
		}

		var got bytes.Buffer
		if err := s.CopyText(t.Context(), &got, theLog, st.Size); err != nil {
			t.Fatal(err)
		}

		text := got.String()
		if lines > 0 {
			text = strings.ReplaceAll(text, "10 %\r20 %\r", "")
		}

		if text != want {
			t.Errorf("with %d lines the text of %d bytes is another one than that of %d", lines, len(text), len(want))
		}
	}
}

func TestLinesThatLookLikeErrors(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]bool{
		"Traceback (most recent call last):":                        true,
		"ValueError: shapes do not match":                           true,
		"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to": true,
		"[rank1]: RuntimeError: NCCL communicator was aborted":      true,
		"KeyboardInterrupt":                                         true,
		"2026-11-17 02:00:00 ERROR worker 3 failed":                 true,
		"[CRITICAL] disk":                                           true,
		"error: unknown option --lrr":                               true,
		"fatal: not a git repository":                               true,
		"panic: runtime error: index out of range":                  true,
		"sh: 1: pyhton: command not found":                          true,
		"Segmentation fault (core dumped)":                          true,
		"Killed":                                                    true,
		"OSError: [Errno 28] No space left on device":               true,
		"process exited with code 1":                                true,
		"epoch 3 train error: 0.123":                                false,
		"val_error=0.2 mean squared error 0.04":                     false,
		"process exited with code 0":                                false,
		"loaded memory map, 12 GB of memory free":                   false,
		"skilled labour":                                            false,
		"0 errors, 2 warnings":                                      false,
		"step 100 loss 0.3":                                         false,
		"no default found, using 3":                                 false,
	} {
		if got := LooksLikeError([]byte(text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
