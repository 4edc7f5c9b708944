package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// BenchmarkPollOfATorrent is one poll of a program that prints two million lines between two polls.
func BenchmarkPollOfATorrent(b *testing.B) {
	p := start(b)
	var text strings.Builder
	for i := range 1_500 {
		fmt.Fprintf(&text, "step %d loss=%g acc=0.5 some more words\n", i, 1/float64(i+1))
	}

	for p.output.Len() < 2*outputRead {
		p.print(text.String()[:60_000])
	}

	b.SetBytes(outputRead)

	for b.Loop() {
		p.g.output.offset = 0
		if _, err := p.g.Poll(begun.Add(time.Second), false); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPollOfNothing is one poll of a program that is silent and has a large working directory.
func BenchmarkPollOfNothing(b *testing.B) {
	p := start(b)
	for i := range 2000 {
		p.write(fmt.Sprintf("work/d%d/f%d.txt", i%50, i), "x")
	}

	now := begun
	for b.Loop() {
		now = now.Add(2 * time.Second)
		if _, err := p.g.Poll(now, false); err != nil {
			b.Fatal(err)
		}
	}
}
