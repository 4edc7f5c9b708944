package archive

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"trainyard/internal/api"
	"trainyard/internal/logs"
)

// texts puts lines together again, stream by stream.
func texts(lines []api.LogLine) map[string]string {
	out := map[string][]byte{}
	for _, l := range lines {
		text := l.Text
		if l.Raw != nil {
			text = string(l.Raw)
		}

		if !l.Partial {
			text += "\n"
		}

		out[l.Stream] = append(out[l.Stream], text...)
	}

	return asText(out)
}

func asText(all map[string][]byte) map[string]string {
	out := map[string]string{}
	for name, text := range all {
		out[name] = string(text)
	}

	return out
}

// frames are what a program printed, in the order of time.
type frames []logs.Frame

// texts is what was printed, stream by stream. A remark is a line in any case.
func (f frames) texts() map[string]string {
	out := map[string][]byte{}
	for _, one := range f {
		text := string(one.Data)
		if one.Stream == logs.Yard && !strings.HasSuffix(text, "\n") && text != "" {
			text += "\n"
		}

		if text != "" {
			out[one.Stream.String()] = append(out[one.Stream.String()], text...)
		}
	}

	return asText(out)
}

func (f frames) bytes(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	w := logs.NewWriter(&out, 0)
	for i, one := range f {
		if err := w.Write(one.Stream, time.UnixMilli(int64(i)), one.Data); err != nil {
			t.Fatal(err)
		}
	}

	return out.Bytes()
}

// drawFrames draws output with whole and open lines, binary, very long lines
// and streams that take turns, at times more of it than is read in one go.
func drawFrames(t *rapid.T) frames {
	piece := rapid.Custom(func(t *rapid.T) []byte {
		switch rapid.IntRange(0, 9).Draw(t, "kind of piece") {
		case 0:
			return rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "binary")
		case 1:
			return []byte("open")
		case 2:
			return bytes.Repeat([]byte("long "), rapid.SampledFrom([]int{1, 100, 13_000, 14_000}).Draw(t, "length"))
		case 3:
			return []byte("\n\n\r\n")
		case 4:
			return bytes.Repeat([]byte("line\n"), rapid.IntRange(1, 200).Draw(t, "lines"))
		default:
			return []byte(rapid.StringMatching(`[a-zé]{0,12}\n`).Draw(t, "line"))
		}
	})

	var out frames

	for range rapid.IntRange(0, 30).Draw(t, "frames") {
		stream := rapid.SampledFrom([]logs.Stream{logs.Stdout, logs.Stderr, logs.Yard}).Draw(t, "stream")
		data := piece.Draw(t, "data")
		if stream == logs.Yard {
			data = data[:min(len(data), 1000)] // a remark is short
		}

		out = append(out, logs.Frame{Stream: stream, Data: data})
		if stream != logs.Yard && rapid.IntRange(0, 30).Draw(t, "fills up") == 30 { // about a chunk, of one stream alone
			out = append(
				out,
				logs.Frame{
					Stream: stream,
					Data:   bytes.Repeat([]byte(strings.Repeat("x", 999)+"\n"), rapid.IntRange(1000, 1060).Draw(t, "kilobytes")),
				},
			)
		}
	}

	return out
}

func diffTexts(want, got map[string]string) error {
	for _, stream := range []string{"stdout", "stderr", "yard"} {
		w, g := want[stream], got[stream]
		if w != g {
			at := 0
			for at < min(len(w), len(g)) && w[at] == g[at] {
				at++
			}

			return fmt.Errorf(
				"%s differs from byte %d on: %d bytes %.40q, want %d bytes %.40q",
				stream,
				at,
				len(g),
				g[at:],
				len(w),
				w[at:],
			)
		}
	}

	return nil
}

func TestPagesOfOutputHoldEveryByteOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := newShelf(t)
		defer s.empty()

		want := drawFrames(rt)
		raw := want.bytes(t)
		var got []api.LogLine

		at, sent := Mark{}, 0
		for page := 0; ; page++ {
			// It may grow between any two pages, and in the middle of a frame.
			if sent < len(raw) && rapid.Bool().Draw(rt, "grows") || page > 0 && sent < len(raw) {
				next := min(sent+rapid.SampledFrom([]int{1, 30, 1000, 100_000, 3 << 20}).Draw(rt, "part"), len(raw))
				s.append(int64(sent), string(raw[sent:next]), false)
				sent = next
			}

			if sent == len(raw) && !s.state().Ended && rapid.Bool().Draw(rt, "ends") {
				s.append(int64(sent), "", true)
			}

			most := rapid.SampledFrom([]int{1, 2, 3, 50, 500, 100_000}).Draw(rt, "most")
			if page > 30 { // each page reads all that is open again
				most = 1 << 30
			}

			lines, next, more, err := s.lines(at, &Filter{}, most)
			if err != nil {
				rt.Fatal(err)
			}

			if len(lines) > most+1 {
				rt.Fatalf("a page of %d has %d lines", most, len(lines))
			}

			if more && len(lines) == 0 && next == at {
				rt.Fatal("there is more, and no way to it")
			}

			got = append(got, lines...)

			// The cursor survives its way over the wire.
			parsed, err := ParseCursor(Cursor{1, []Mark{next}}.String())
			if err != nil {
				rt.Fatal(err)
			}

			at = parsed.Ranks[0]

			if !more && sent == len(raw) {
				break
			}
		}

		if err := diffTexts(want.texts(), texts(got)); err != nil {
			rt.Fatal(err)
		}
	})
}

func TestTheTailIsTheEndOfTheOutput(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := newShelf(t)
		defer s.empty()

		want := drawFrames(rt)
		if rapid.Bool().Draw(rt, "one stream") {
			for i := range want {
				want[i].Stream = logs.Stdout
			}
		}

		raw := want.bytes(t)
		s.append(0, string(raw), rapid.Bool().Draw(rt, "ended"))
		all := readAll(rt, s, Mark{})
		n := rapid.SampledFrom([]int{1, 2, 10, 1000, 100_000}).Draw(rt, "tail")
		at, err := s.Tail(t.Context(), theLog, &Filter{}, n)
		if err != nil {
			rt.Fatal(err)
		}

		got := readAll(rt, s, at)
		if len(got) < min(n, len(all)) || len(got) > n+2 {
			rt.Fatalf("the last %d of %d lines are %d", n, len(all), len(got))
		}

		whole := texts(all)
		for stream, text := range texts(got) {
			if !strings.HasSuffix(whole[stream], text) {
				rt.Fatalf("the tail of %s is not its end", stream)
			}
		}
	})
}

// lines reads a page, and checks the cursors after its lines.
func (s *shelf) lines(at Mark, f *Filter, most int) (lines []api.LogLine, next Mark, more bool, err error) {
	lines, after, next, more, err := s.ReadLines(context.Background(), theLog, at, f, most)
	if len(after) != len(lines) || len(after) > 0 && after[len(after)-1] != next {
		s.t.Errorf("%d lines have %d cursors, the last of which is not %v", len(lines), len(after), next)
	}

	return lines, next, more, err
}

// readAll reads a log to its end.
func readAll(t interface{ Fatal(...any) }, s *shelf, at Mark) []api.LogLine {
	var all []api.LogLine

	for more := true; more; {
		var lines []api.LogLine
		var err error
		lines, at, more, err = s.lines(at, &Filter{}, 700)
		if err != nil {
			t.Fatal(err)
		}

		all = append(all, lines...)
	}

	return all
}
