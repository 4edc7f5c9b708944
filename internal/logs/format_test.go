package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/test/fuzzing"
)

var at = time.UnixMilli(1_700_000_000_123).UTC()

// frames decodes a whole log and fails the test if it is not one.
func frames(t *testing.T, log []byte) []Frame {
	t.Helper()
	d := NewDecoder(bytes.NewReader(log))

	var out []Frame
	for {
		f, err := d.Next()
		if errors.Is(err, io.EOF) {
			if d.Offset() != int64(len(log)) {
				t.Fatalf("offset = %d at the end of %d bytes", d.Offset(), len(log))
			}

			return out
		}

		if err != nil {
			t.Fatalf("decode: %v", err)
		}

		out = append(out, f)
	}
}

// text joins the payloads of one stream.
func text(fs []Frame, s Stream) string {
	var b strings.Builder
	for _, f := range fs {
		if f.Stream == s {
			b.Write(f.Data)
		}
	}

	return b.String()
}

func mustWrite(t *testing.T, w *Writer, s Stream, data string) {
	t.Helper()

	if err := w.Write(s, at, []byte(data)); err != nil {
		t.Fatalf("write: %v", err)
	}
}

func TestFormatIsAsDocumented(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	w := NewWriter(&log, 0)
	mustWrite(t, w, Stdout, "hi\n")
	mustWrite(t, w, Stderr, "\x00")

	if err := w.Remark(at, "cut at %d", 7); err != nil {
		t.Fatal(err)
	}

	want := "1700000000123 o 3\nhi\n\n1700000000123 e 1\n\x00\n1700000000123 y 8\ncut at 7\n"
	if diff := cmp.Diff(want, log.String()); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))

	random := make([]byte, 3*MaxFrame+17)
	for i := range random {
		random[i] = byte(rng.Uint32())
	}

	tests := []struct{ name, data string }{
		{"empty", ""},
		{"one byte", "x"},
		{"line ends only", "\n\n\n"},
		{"looks like a header", "1 o 5\nabc\n"},
		{"exactly one frame", strings.Repeat("a", MaxFrame)},
		{"one more than a frame", strings.Repeat("a", MaxFrame+1)},
		{"binary over several frames", string(random)},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			w := NewWriter(&log, 0)
			mustWrite(t, w, Stdout, tt.data)
			mustWrite(t, w, Stderr, "other")

			got := frames(t, log.Bytes())
			if text(got, Stdout) != tt.data || text(got, Stderr) != "other" {
				t.Error("the output changed on its way through the log")
			}

			for _, f := range got {
				if !f.At.Equal(at) {
					t.Errorf("time = %v, want %v", f.At, at)
				}
			}
		})
	}
}

func TestOutputPastTheLimitIsCutWithRemarks(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	w := NewWriter(&log, 5)
	mustWrite(t, w, Stdout, "abc")
	mustWrite(t, w, Stderr, "defgh")
	mustWrite(t, w, Stdout, "ij")

	if err := w.Close(at); err != nil {
		t.Fatal(err)
	}

	got := frames(t, log.Bytes())

	want := []Frame{
		{at, Stdout, []byte("abc")},
		{at, Stderr, []byte("de")},
		{at, Yard, []byte("output is cut here: the limit of 5 bytes is reached")},
		{at, Yard, []byte("5 bytes of output were dropped after the limit of 5")},
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOutputOfExactlyTheLimitIsNotCut(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	w := NewWriter(&log, 5)
	mustWrite(t, w, Stdout, "abcde")

	if err := w.Close(at); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff([]Frame{{at, Stdout, []byte("abcde")}}, frames(t, log.Bytes())); diff != "" {
		t.Error(diff)
	}
}

// fullDisk takes room bytes and then fails until it is given more.
type fullDisk struct {
	bytes.Buffer
	room int
}

func (d *fullDisk) Write(p []byte) (int, error) {
	n := min(len(p), d.room)
	d.room -= n
	d.Buffer.Write(p[:n])

	if n < len(p) {
		return n, errors.New("no space left")
	}

	return n, nil
}

func TestLogStaysWholeOverAFullDisk(t *testing.T) {
	t.Parallel()

	// The disk fills up at every possible byte, and recovers bit by bit.
	for room := range 60 {
		disk := &fullDisk{room: room}
		w := NewWriter(disk, 0)

		acknowledged := ""
		for i := range 6 {
			line := fmt.Sprintf("line %d\n", i)

			if i >= 3 {
				disk.room += 40
			}

			if w.Write(Stdout, at, []byte(line)) == nil {
				acknowledged += line
			}
		}

		disk.room = 1 << 20
		mustWrite(t, w, Stdout, "end\n")
		got := frames(t, disk.Bytes())
		kept := text(got, Stdout)
		for line := range strings.Lines(acknowledged + "end\n") {
			if !strings.Contains(kept, line) {
				t.Errorf("room %d: acknowledged %q is not in the log %q", room, line, kept)
			}
		}

		remarks := text(got, Yard)
		if len(kept) < len("line 0\n")*6+4 && !strings.Contains(remarks, "missing here") {
			t.Errorf("room %d: output is missing without a remark", room)
		}
	}
}

func TestDecoderSaysWhereALogIsTornOrDamaged(t *testing.T) {
	t.Parallel()
	whole := "5 o 2\nab\n"
	tests := []struct {
		name   string
		log    string
		want   error
		why    string
		offset int64
	}{
		{name: "empty", log: "", want: io.EOF},
		{name: "whole", log: whole, want: io.EOF, offset: 9},
		{name: "torn header", log: whole + "12", want: io.ErrUnexpectedEOF, offset: 9},
		{name: "torn payload", log: whole + "12 e 5\nab", want: io.ErrUnexpectedEOF, offset: 9},
		{name: "torn before the last line end", log: whole + "12 e 2\nab", want: io.ErrUnexpectedEOF, offset: 9},
		{name: "no time", log: whole + "x o 2\nab\n", why: "a frame must begin with its time in milliseconds", offset: 9},
		{
			name:   "negative time",
			log:    whole + "-1 o 2\nab\n",
			why:    "a frame must begin with its time in milliseconds",
			offset: 9,
		},
		{name: "unknown stream", log: "1 z 2\nab\n", why: "unknown stream 'z'"},
		{name: "no length", log: "1 o \nab\n", why: "a frame's header must be its time, stream and length"},
		{name: "signed length", log: "1 o +2\nab\n", why: "a frame's length must be a number"},
		{name: "length too great", log: "1 o 65537\nab\n", why: "a frame's length must be at most 65536"},
		{name: "length of many digits", log: "1 o 99999999999999999999\n", why: "a frame's length must be at most 65536"},
		{name: "endless header", log: strings.Repeat("1", 1000), why: "a frame's header is too long"},
		{name: "length too small", log: whole + "1 o 1\nab\n", why: "a frame must end with a line end", offset: 9},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := NewDecoder(iotest.OneByteReader(strings.NewReader(tt.log)))

			var err error
			for err == nil {
				_, err = d.Next()
			}

			var damage *DamageError
			switch {
			case tt.want != nil && !errors.Is(err, tt.want):
				t.Errorf("error = %v, want %v", err, tt.want)
			case tt.why != "" && (!errors.As(err, &damage) || damage.Why != tt.why || damage.Offset != tt.offset):
				t.Errorf("error = %v, want %q at %d", err, tt.why, tt.offset)
			}

			if d.Offset() != tt.offset {
				t.Errorf("offset = %d, want %d", d.Offset(), tt.offset)
			}

			if _, again := d.Next(); !errors.Is(again, err) {
				t.Errorf("second error = %v, want the first, %v", again, err)
			}
		})
	}
}

func TestMendMakesEveryTornLogWhole(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	w := NewWriter(&log, 0)
	mustWrite(t, w, Stdout, "first\n")
	start := log.Len()
	mustWrite(t, w, Stderr, "binary \x00\n1 o 2\n and more text")

	for n := start; n < log.Len(); n++ {
		torn := log.Bytes()[start:n]
		mended := append(append([]byte(nil), log.Bytes()[:n]...), Mend(torn)...)
		got := frames(t, mended)
		if string(got[0].Data) != "first\n" {
			t.Errorf("torn at %d: the frame before changed", n)
		}
	}

	for _, bad := range []string{"x", "1 z", "1 o 2\nabc", "1 o 99999999", strings.Repeat("1", 50)} {
		if got := Mend([]byte(bad)); got != nil {
			t.Errorf("Mend(%q) = %q, want nothing: it is no torn frame", bad, got)
		}
	}
}

func TestLinesAreAssembledByStream(t *testing.T) {
	t.Parallel()
	later := at.Add(time.Second)
	var log bytes.Buffer
	w := NewWriter(&log, 0)
	write := func(s Stream, when time.Time, data string) {
		t.Helper()

		if err := w.Write(s, when, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}

	write(Stdout, at, "a")
	write(Stderr, at, "error\n\n")
	write(Stdout, later, "b\nc\r")
	write(Yard, at, "remark")
	write(Stdout, later, "d\x00\xff\nlast")
	lines := NewLines(NewDecoder(&log))

	var got []Line
	for {
		l, err := lines.Next()
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			t.Fatal(err)
		}

		got = append(got, l)
	}

	want := []Line{
		{at, Stderr, []byte("error"), false},
		{at, Stderr, nil, false},
		{at, Stdout, []byte("ab"), false},
		{at, Yard, []byte("remark"), false},
		{later, Stdout, []byte("c\rd\x00\xff"), false},
		{later, Stdout, []byte("last"), true},
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAssemblerIsEmptyBetweenLines(t *testing.T) {
	t.Parallel()
	var a Assembler
	for _, step := range []struct {
		data  string
		empty bool
	}{{"", true}, {"begun", false}, {" and ended\n", true}, {"again", false}} {
		a.Add(Frame{At: at, Stream: Stderr, Data: []byte(step.data)})

		if a.Empty() != step.empty {
			t.Errorf("empty = %v after %q", a.Empty(), step.data)
		}
	}

	a.Flush()

	if !a.Empty() {
		t.Error("not empty after Flush")
	}
}

func TestLongLinesComeInPiecesAndAreComplete(t *testing.T) {
	t.Parallel()

	for _, n := range []int{MaxLine - 1, MaxLine, MaxLine + 1, 1 << 20} {
		var log bytes.Buffer
		w := NewWriter(&log, 0)
		want := strings.Repeat("0123456789", n/10+1)[:n] + "\nnext\n"
		mustWrite(t, w, Stdout, want)
		lines := NewLines(NewDecoder(&log))
		var got strings.Builder

		for {
			l, err := lines.Next()
			if errors.Is(err, io.EOF) {
				break
			}

			if err != nil {
				t.Fatal(err)
			}

			if len(l.Text) > MaxLine {
				t.Errorf("a piece of %d bytes", len(l.Text))
			}

			got.Write(l.Text)

			if !l.Partial {
				got.WriteByte('\n')
			}
		}

		if got.String() != want {
			t.Errorf("a line of %d bytes changed on its way", n)
		}
	}
}

func FuzzDecoder(f *testing.F) {
	for _, seed := range []string{"", "1 o 3\nabc\n", "1 o 3\nabc\n2 e 0\n\n3 y 1\nx\n", "1 o 65536\n", "9223372036854775807 o 1\na\n", "1 o 3\nab"} {
		f.Add([]byte(seed))
	}

	f.Fuzz(func(t *testing.T, log []byte) {
		defer fuzzing.Bounded(t)()

		d := NewDecoder(bytes.NewReader(log))
		var again bytes.Buffer
		w := NewWriter(&again, 0)
		count := 0
		var err error

		for {
			var fr Frame
			fr, err = d.Next()
			if err != nil {
				break
			}

			count++

			if werr := w.Write(fr.Stream, fr.At, fr.Data); werr != nil {
				t.Fatal(werr)
			}
		}

		if d.Offset() > int64(len(log)) || count > len(log) {
			t.Fatalf("offset %d and %d frames of %d bytes", d.Offset(), count, len(log))
		}

		if errors.Is(err, io.ErrUnexpectedEOF) {
			end := Mend(log[d.Offset():])
			if end == nil {
				return // a torn header that could not have come from a Writer
			}

			whole := NewDecoder(io.MultiReader(bytes.NewReader(log), bytes.NewReader(end)))
			for err = nil; err == nil; {
				_, err = whole.Next()
			}

			if !errors.Is(err, io.EOF) {
				t.Fatalf("mended log: %v", err)
			}
		}
	})
}
