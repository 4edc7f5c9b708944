package console

import (
	"strings"
	"testing"
	"time"
)

func TestTheLocaleSaysWhatCanBeShown(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		vars map[string]string
		want bool
	}{
		"nothing set":           {nil, false},
		"LANG":                  {map[string]string{"LANG": "en_US.UTF-8"}, true},
		"spelled otherwise":     {map[string]string{"LC_CTYPE": "C.utf8"}, true},
		"LC_ALL counts first":   {map[string]string{"LC_ALL": "C", "LANG": "en_US.UTF-8"}, false},
		"empty does not count":  {map[string]string{"LC_ALL": "", "LANG": "en_US.UTF-8"}, true},
		"another character set": {map[string]string{"LANG": "de_DE.ISO-8859-1"}, false},
		"the bare console":      {map[string]string{"LANG": "en_US.UTF-8", "TERM": "linux"}, false},
	} {
		c := New(Env{Stdin: strings.NewReader(""), LookupEnv: func(key string) (string, bool) {
			v, ok := tt.vars[key]
			return v, ok
		}})

		if got := c.UTF8(); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestLinesAreAsWideAsTheTerminal(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		terminal bool
		width    func() int
		want     int
	}{
		"a terminal":             {true, func() int { return 132 }, 132},
		"one that does not tell": {true, func() int { return 0 }, 80},
		"nobody to ask":          {true, nil, 80},
		"no terminal":            {false, func() int { return 132 }, 80},
	} {
		c := New(Env{Stdin: strings.NewReader(""), IsTerminal: func(any) bool { return tt.terminal }, Width: tt.width})
		if got := c.Columns(nil); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

func TestTimesAreOfTheMachinesZone(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	if got := New(
		Env{Stdin: strings.NewReader(""), Zone: time.FixedZone("CET", 3600)},
	).Here(at).
		Format("15:04 MST"); got != "13:00 CET" {
		t.Error(got)
	}

	if got := New(Env{Stdin: strings.NewReader("")}).Here(at).Format("15:04 MST"); got != "12:00 UTC" {
		t.Error(got)
	}
}
