package lines

import (
	"fmt"
	"os"
	"testing"

	"trainyard/internal/agent/metrics/reading"
)

func TestDump(t *testing.T) {
	for _, f := range []string{"hf", "ker1", "ker2", "tq", "lit"} {
		p, _ := New(nil)
		fmt.Println("==", f)
		emit := func(k Kind, r reading.Reading) {
			fmt.Println(k, "step", r.Step, "done", r.Done, "total", r.Total, r.Values)
		}
		out, _ := os.ReadFile("/tmp/h5/real/" + f + ".out")
		er, _ := os.ReadFile("/tmp/h5/real/" + f + ".err")
		var a, b Splitter
		a.Add(er, func(l []byte) { p.Line(l, emit) })
		b.Add(out, func(l []byte) { p.Line(l, emit) })
		p.Flush(emit)
	}
}
