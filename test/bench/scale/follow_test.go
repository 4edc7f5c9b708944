package scale

import (
	"testing"
	"time"
)

func TestTheTimeOfALineIsFoundHoweverItComes(t *testing.T) {
	t.Parallel()

	at := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	line := string(Line(7, at))

	tests := []struct {
		name, text string
		want       int
	}{
		{"none", "id: 5\ndata: {}\n\n", 0},
		{"one", `data: {"at":"2026-03-01T12:00:00Z","text":"` + line, 1},
		{"several", line + line + line, 3},
		{"what looks like one", "t=1t=x;" + line, 1},
		{"one that is not whole", line + line[:len(line)-3], 1},
		{"digits without the end", line[:len(line)-2], 0},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			got := 0
			for rest := []byte(tt.text); ; got++ {
				found, after, ok := nextStamp(rest)
				if !ok {
					break
				}

				if !found.Equal(at) {
					t.Errorf("time = %s, want %s", found, at)
				}

				rest = after
			}

			if got != tt.want {
				t.Errorf("%d times found, want %d", got, tt.want)
			}
		})
	}
}
