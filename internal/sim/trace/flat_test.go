package trace_test

import (
	"fmt"
	"io"
	"runtime"
	"testing"

	"trainyard/internal/sim"
	"trainyard/internal/sim/trace"
)

// endless yields rows as they are read, so that the text itself is never in memory.
type endless struct {
	row   func(i int) string
	left  int
	i     int
	ready []byte
}

func (e *endless) Read(p []byte) (int, error) {
	for len(e.ready) == 0 {
		if e.i >= e.left {
			return 0, io.EOF
		}

		e.ready = append(e.ready[:0], e.row(e.i)...)
		e.i++
	}

	n := copy(p, e.ready)
	e.ready = e.ready[n:]

	return n, nil
}

func TestMemoryStaysFlatForLongTraces(t *testing.T) {
	const n = 200_000
	for format, row := range map[string]func(i int) string{
		"swf": func(i int) string {
			return fmt.Sprintf("%d %d 5 %d 8 -1 -1 %d %d -1 1 %d 1 -1 1 -1 -1 -1\n", i, i*10, i%9999+1, i%128+1, i%86400, i%500)
		},
		"yard": func(i int) string {
			switch kind := `{"at":"2026-01-01T%02d:%02d:%02dZ","kind":"job.%s","owner":"ann","job":"j%d","to":"%s"}` + "\n"; i % 3 {
			case 0:
				return fmt.Sprintf(kind, i/3/3600, i/3/60%60, i/3%60, "submitted", i/3+1, "pending")
			case 1:
				return fmt.Sprintf(kind, i/3/3600, i/3/60%60, i/3%60, "running", i/3+1, "running")
			default:
				return fmt.Sprintf(`{"at":"2026-01-02T01:00:00Z","kind":"job.succeeded","owner":"ann","job":"j%d","to":"succeeded"}`+"\n", i/3+1)
			}
		},
	} {
		t.Run(format, func(t *testing.T) {
			r, err := trace.Read(&endless{row: row, left: n}, "long", format, trace.Options{Default: 1})
			if err != nil {
				t.Fatal(err)
			}

			// The specs that jobs share are forgotten after so many: both times equally many are there.
			const from, specs = 20_000, 1 << 14
			count, half := 0, uint64(0)
			each(t, trace.First(r, from+2*specs), func(*sim.Job) {
				count++
				if count == from {
					half = heap()
				}
			})

			if grown := int64(heap()) - int64(half); grown > 4<<20 {
				t.Errorf("memory grew by %d kB over the last of %d jobs", grown>>10, count)
			}

			if count < 50_000 {
				t.Errorf("only %d jobs", count)
			}

			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// heap returns the bytes that are in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)

	return m.HeapAlloc
}
