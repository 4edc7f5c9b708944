package cli

import (
	"fmt"
	"slices"
	"testing"
)

func TestTellingLines(t *testing.T) {
	t.Parallel()

	var plain []string
	for i := range 20 {
		plain = append(plain, fmt.Sprint("line ", i))
	}

	if got := tellingLines(plain); len(got) != failureShown || got[len(got)-1] != "line 19" {
		t.Errorf("of plain output %q", got)
	}

	if got := tellingLines(plain[:3]); !slices.Equal(got, plain[:3]) {
		t.Errorf("of short output %q", got)
	}

	failed := slices.Concat(plain[:2], []string{"  Traceback (most recent call last):", "    File", "  ValueError: bad"}, plain)
	if got := tellingLines(failed); got[0] != failed[2] || got[2] != failed[4] || len(got) != failureShown {
		t.Errorf("of a traceback %q", got)
	}
}
